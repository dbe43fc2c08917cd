"""Hydra's multirun, hands-free: each job is a run of one sweep."""

from __future__ import annotations

from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index
from tests.conftest import Script

TRAIN = """
import random

import hydra


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    weight = 5.0 + random.random()
    for epoch in range(3):
        for step in range(3):
            weight -= cfg.lr * weight
        print(f"loss: {weight}")
        # probe
    return 1 / cfg.width


if __name__ == "__main__":
    main()
"""


def jobs_of(script: Script) -> tuple[Any, list[Any]]:
    index = Index(Home(script.home))
    records = [entry.record for entry in index.runs()]
    index.close()
    (parent,) = [record for record in records if record.parent is None]
    return parent, sorted((record for record in records if record.parent), key=lambda record: record.trial)


@pytest.fixture
def project(script: Script) -> Script:
    pytest.importorskip("hydra")
    script.write(TRAIN)
    script.write("lr: 0.1\nwidth: 4\n", "conf/config.yaml")
    return script


def test_each_job_of_a_multirun_is_a_run_of_one_sweep(project: Script):
    done = project.relive("run", "train.py", "--multirun", "lr=0.1,0.2")
    parent, jobs = jobs_of(project)

    assert not done.stderr
    assert [(job.trial, job.sweep, job.outcome) for job in jobs] == [
        (trial, f"train-{parent.run[:8]}", "finished") for trial in range(2)
    ]
    args = [{name: (arg["value"], arg["origin"]) for name, arg in job.config["args"].items()} for job in jobs]
    assert args == [{"lr": (lr, "override"), "width": (4, "hydra")} for lr in (0.1, 0.2)]
    assert parent.config["args"] == {}


def test_a_job_that_fails_has_failed_and_hydra_tells_it_as_ever(project: Script):
    plain = project(None, "--multirun", "lr=0.1", "width=4,0", check=False)
    done = project.relive("run", "train.py", "--multirun", "lr=0.1", "width=4,0", check=False)

    assert done.returncode == plain.returncode == 1
    assert done.stderr == plain.stderr
    assert [job.outcome for job in jobs_of(project)[1]] == ["finished", "failed"]


@pytest.mark.long
def test_a_job_is_replayed_with_its_overrides_and_random_numbers(project: Script):
    project.relive("run", "train.py", "--multirun", "lr=0.1,0.2")
    project.write(TRAIN.replace("# probe", "print('probe:', weight + cfg.lr)"))
    relive.replay("probe", where="lr = 0.2", home=project.home)
    frame = relive.dataframe("lr", "loss", "probe", home=project.home).dropna(subset="probe")

    assert frame["lr"].tolist() == [0.2] * 3
    assert frame["probe"].tolist() == [loss + 0.2 for loss in frame["loss"]]
