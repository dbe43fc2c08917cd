"""Calls that a pool makes for a hands-free script: those that train are runs of one sweep."""

from __future__ import annotations

from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index
from tests.conftest import Script

TRAIN = """
import argparse
import random
import sys


def train(lr, epochs=3):
    weight = 5.0 + random.random()
    for epoch in range(epochs):
        for step in range(3):
            weight -= lr * weight
        print(f"loss: {weight}")
        # probe
    return weight


def helper(number):
    return sum(range(number))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    parser.parse_args()
    POOL


if __name__ == "__main__":
    main()
"""
JOBLIB = """from joblib import Parallel, delayed
    print(Parallel(n_jobs=2)(delayed(helper)(number) for number in range(3)))
    print(len(Parallel(n_jobs={jobs})(delayed(train)(lr) for lr in (0.1, 0.2))))"""
POOL = """import multiprocessing
    with multiprocessing.get_context("{how}").Pool(2) as pool:
        print(pool.map(helper, range(3)))
        print(len(pool.{call}))
        pool.close()
        pool.join()"""
PROCESS = """import multiprocessing
    context = multiprocessing.get_context("{how}")
    for lr in (0.1, 0.2):
        process = context.Process(target=train, kwargs={{"lr": lr}})
        process.start()
        process.join()"""
FUTURES = """from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(helper, range(3))))
        {call}"""


def records(script: Script) -> list[Any]:
    index = Index(Home(script.home))
    found = [entry.record for entry in index.runs()]
    index.close()
    return found


POOLS = {
    "joblib": JOBLIB.format(jobs=2),
    "joblib-sequential": JOBLIB.format(jobs=1),
    "map": POOL.format(how="fork", call="map(train, [0.1, 0.2])"),
    "spawn": POOL.format(how="spawn", call="starmap(train, [(0.1,), (0.2, 3)])"),
    "forkserver": POOL.format(how="forkserver", call="map(train, [0.1, 0.2])"),
    "imap": POOL.format(how="fork", call="__class__.__name__), list(pool.imap(train, [0.1, 0.2])"),
    "apply": POOL.format(how="fork", call="__class__.__name__), *(pool.apply(train, (lr,)) for lr in (0.1, 0.2)"),
    "process": PROCESS.format(how="fork"),
    "process-spawn": PROCESS.format(how="spawn"),
    "futures-map": FUTURES.format(call="print(len(list(pool.map(train, [0.1, 0.2], [3, 3]))))"),
    "futures-submit": FUTURES.format(call="print(*(pool.submit(train, lr).result() > 0 for lr in (0.1, 0.2)))"),
}


OFTEN = ("joblib", "map", "spawn", "process", "futures-map")


@pytest.mark.parametrize(
    "pool", [pool if pool in OFTEN else pytest.param(pool, marks=pytest.mark.long) for pool in POOLS]
)
def test_calls_that_train_are_runs_of_one_sweep(script: Script, pool: str):
    if pool.startswith("joblib"):
        pytest.importorskip("joblib")
    script.write(TRAIN.replace("POOL", POOLS[pool]), "sweep.py")
    done = script.relive("run", "sweep.py", "--width", "4")
    parent, *calls = sorted(records(script), key=lambda record: record.trial if record.trial is not None else -1)

    assert not done.stderr
    assert done.stdout.count("loss:") == 6
    assert [call.filename for call in calls] == ["sweep.py"] * 2
    assert [(call.trial, call.sweep, call.parent) for call in calls] == [
        (trial, f"sweep-{parent.run[:8]}", parent.run) for trial in range(2)
    ]
    assert [call.outcome for call in (parent, *calls)] == ["finished"] * 3
    values = [{name: arg["value"] for name, arg in call.config["args"].items()} for call in calls]
    assert values == [{"lr": lr, "epochs": 3, "width": 4} for lr in (0.1, 0.2)]
    frame = relive.dataframe("lr", "loss", home=script.home)
    assert frame["lr"].tolist() == [0.1] * 3 + [0.2] * 3 or frame["lr"].tolist() == [0.2] * 3 + [0.1] * 3


@pytest.mark.long
@pytest.mark.parametrize("pool", ["joblib", "map", "spawn", "process", "futures-submit"])
def test_a_run_of_a_sweep_is_replayed_with_its_args_and_random_numbers(script: Script, pool: str):
    if pool.startswith("joblib"):
        pytest.importorskip("joblib")
    source = TRAIN.replace("POOL", POOLS[pool])
    script.write(source, "sweep.py")
    script.relive("run", "sweep.py")
    script.write(source.replace("# probe", "print('probe:', weight + lr)"), "sweep.py")
    relive.replay("probe", where="lr = 0.2", home=script.home)
    frame = relive.dataframe("lr", "loss", "probe", home=script.home).dropna(subset="probe")

    assert frame["lr"].tolist() == [0.2] * 3
    assert frame["probe"].tolist() == [loss + 0.2 for loss in frame["loss"]]


def test_a_call_that_fails_fails_as_without_relive_and_its_run_has_failed(script: Script):
    pool = POOL.format(how="fork", call="map(train, [0.1, 'x'])")
    script.write(TRAIN.replace("POOL", pool), "sweep.py")
    plain = script(None, name="sweep.py", check=False)
    done = script.relive("run", "sweep.py", check=False)

    assert done.returncode == plain.returncode == 1
    assert done.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert "failed" in [record.outcome for record in records(script) if record.trial is not None]


def test_a_sweep_that_the_environment_names_keeps_its_name(script: Script):
    script.write(TRAIN.replace("POOL", POOLS["map"]), "sweep.py")
    script.relive("run", "sweep.py", env={"RELIVE_SWEEP": "night"})

    assert {record.sweep for record in records(script)} == {"night"}


HOGWILD = """
import torch
import torch.multiprocessing as mp


def train(rank, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for step in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 2)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"loss: {loss.item()}")


if __name__ == "__main__":
    model = torch.nn.Linear(2, 1)
    model.share_memory()
    processes = [mp.get_context("fork").Process(target=train, args=(rank, model)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""


@pytest.mark.long
def test_processes_that_train_one_shared_model_are_one_run(script: Script) -> None:
    pytest.importorskip("torch")
    script.relive("run", str(script.write(HOGWILD)))

    assert len(records(script)) == 1
