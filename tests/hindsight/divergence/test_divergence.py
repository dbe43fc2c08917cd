"""Where two recorded runs parted: real runs that differ in one thing each."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

import relive

TRAIN = """
import os, signal
import numpy as np
import relive

lr = relive.arg("lr", 0.1)
seed = relive.arg("seed", 1)
dies_in = relive.arg("dies_in", -1)
x = np.loadtxt("points.csv", delimiter=",")
rng = np.random.default_rng(seed)
w = rng.normal(size=x.shape[1])
{define}

with relive.checkpointing(w=w, every=3):
    for epoch in relive.loop("epoch", range(6)):
        if epoch == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        for step in relive.loop("step", range(2)):
            w -= lr * {gradient}
        {log}
"""
PLAIN = {"define": "def gradient(w, epoch):\n    return x.T @ (x @ w - 1.0) / len(x)", "gradient": "gradient(w, epoch)"}
# The same operations in the same order, in a class.
REFACTORED = {
    "define": "class Loss:\n    def __init__(self, data):\n        self.data = data\n\n    def gradient(self, w):\n"
    "        apart = self.data @ w - 1.0\n        return self.data.T @ apart / len(self.data)\n\nof = Loss(x)",
    "gradient": "of.gradient(w)",
}
# From epoch 4 on the gradient is summed in single precision, which differs on every processor.
ROUNDED = {
    "define": "def gradient(w, epoch):\n    data = x.astype(np.float32) if epoch >= 4 else x\n"
    "    return data.T @ (x @ w - 1.0) / len(x)",
    "gradient": "gradient(w, epoch)",
}
LOGS = {"log": 'relive.log("weights", w.tolist())'}


class Project:
    """Runs of one script, by name."""

    def __init__(self, script: Any) -> None:
        self._script = script
        self.home: Path = script.home
        self._runs: dict[str, str] = {}
        self.write_data(0.25)

    def write_data(self, last: float) -> None:
        rows = [[((7 * row + 3 * column) % 11) / 7 for column in range(5)] for row in range(40)]
        rows[-1][-1] = last
        self._script.write("\n".join(",".join(map(str, row)) for row in rows), "points.csv")

    def run(self, name: str, *args: str, check: bool = True, **parts: str) -> None:
        before = {path.name for path in (self.home / "runs").glob("*")}
        source = TRAIN.format(**{**PLAIN, **LOGS, **parts})
        kwargs = ["--kwargs", *args] if args else []
        self._script(source, *kwargs, check=check, env={"OMP_NUM_THREADS": "1"})
        (self._runs[name],) = {path.name for path in (self.home / "runs").glob("*")} - before

    def ids(self, *names: str) -> list[str]:
        return [self._runs[name] for name in names]

    def diverge(self, one: str, other: str, **how: Any) -> dict[str, Any]:
        return relive.diverge(self._runs[one], self._runs[other], home=self.home, **how)

    def relive(self, *args: str) -> Any:
        words = [self._runs.get(arg, arg) for arg in args]
        return self._script.relive(*words, check=False)


@pytest.fixture(scope="module")
def project(shared_script: Any) -> Project:
    made = Project(shared_script)
    made.run("first")
    made.run("twin")
    made.run("seed", "seed=2")
    made.run("lr", "lr=0.2")
    made.run("refactored", **REFACTORED)
    made.run("rounded", **ROUNDED)
    made.run("silent", log="pass")
    made.run("silent_rounded", log="pass", **ROUNDED)
    made.run("died", "dies_in=5", check=False)
    made.write_data(0.5)
    made.run("data")
    return made


def test_the_same_script_twice_is_identical_and_says_how_much_was_compared(project: Project) -> None:
    found = project.diverge("first", "twin")

    assert found["verdict"] == "identical"
    assert found["parted"] is None
    assert found["compared"]["values"] == 6
    assert found["compared"]["states"] >= 4  # the entry, epochs 2 and 5, the end
    assert not any(found["before"].values())


def test_another_seed_differs_when_the_loop_begins(project: Project) -> None:
    found = project.diverge("first", "seed")

    assert found["verdict"] == "parted"
    assert found["parted"]["where"] == "the entry of epoch"
    assert found["parted"]["leaf"] == "w"
    assert found["before"]["args"] == {"seed": (1, 2)}
    assert "rng.bit_generator" in " ".join(leaf["path"] for leaf in found["parted"]["leaves"])


def test_another_learning_rate_parts_in_the_first_iteration_because_of_the_arg(project: Project) -> None:
    found = project.diverge("first", "lr")

    assert found["parted"]["where"] == "epoch=0"
    assert found["parted"]["last_agreed"] == "the entry of epoch"
    assert found["parted"]["between"] == 0
    assert found["before"]["args"] == {"lr": (0.1, 0.2)}
    assert [leaf["path"] for leaf in found["ranks"]["0"]["settings"]] == ["lr"]


def test_a_refactoring_that_changes_no_bit_is_identical_although_the_code_differs(project: Project) -> None:
    found = project.diverge("first", "refactored")

    assert found["verdict"] == "identical"
    assert found["before"]["code"] == ["train.py"]
    assert "of" in found["ranks"]["0"]["only_other"]
    assert found["compared"]["values"] == 6


def test_another_precision_of_a_sum_is_found_in_the_iteration_where_it_begins(project: Project) -> None:
    found = project.diverge("first", "rounded")

    assert found["parted"]["where"] == "epoch=4"
    assert found["parted"]["leaf"] == "weights"
    assert found["parted"]["leaves"][0]["path"] == "w"
    assert found["before"]["code"] == ["train.py"]


def test_changed_data_differ_at_the_entry_and_the_file_is_named(project: Project) -> None:
    found = project.diverge("first", "data")

    assert found["parted"]["where"] == "the entry of epoch"
    assert found["parted"]["leaf"] == "x"
    assert any("points.csv" in change for change in found["before"]["data"])


def test_a_replay_finds_the_iteration_between_checkpoints(project: Project) -> None:
    found = project.diverge("silent", "silent_rounded", replay=True)

    assert found["verdict"] == "parted"
    assert found["parted"]["where"] == "epoch=4"
    assert found["parted"]["leaf"] == "w"
    assert found["parted"]["between"] == 0


def test_without_a_replay_the_gap_is_told(project: Project) -> None:
    found = project.diverge("silent", "silent_rounded")["parted"]

    assert found["leaf"] == "w"
    agreed, parted = found["last_agreed_iteration"], found["iteration"]
    assert agreed < 4 <= parted
    assert found["between"] == parted - agreed - 1


def test_a_run_that_was_killed_is_compared_as_far_as_it_came(project: Project) -> None:
    found = project.diverge("first", "died")

    assert found["verdict"] == "identical"
    assert found["compared"]["values"] == 5
    assert any("cut short" in note for note in found["notes"])


def test_what_is_ignored_does_not_count(project: Project) -> None:
    assert project.diverge("first", "lr")["parted"]["leaf"] == "weights"
    assert project.diverge("first", "lr", ignore=["weights"])["parted"]["leaf"] == "w"


def test_the_command_says_it_in_text_and_by_its_exit_code(project: Project) -> None:
    same, parted = project.relive("diverge", "first", "twin"), project.relive("diverge", "first", "lr")

    assert (same.returncode, parted.returncode) == (0, 1)
    assert "identical, as far as they are recorded" in same.stdout
    assert "parted at epoch=0" in parted.stdout
    assert "arg lr: 0.1 / 0.2" in parted.stdout
    as_json = project.relive("diverge", "first", "lr", "--json")
    assert json.loads(as_json.stdout)["verdict"] == "parted"
    assert project.relive("diverge", "first").returncode == 2


def test_checkpoints_of_an_earlier_release_are_told_and_values_are_compared(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "formats" / "1" / "home", tmp_path / "home")
    runs = sorted(path.name for path in (tmp_path / "home" / "runs").iterdir())

    answers = [relive.diverge(one, one, home=tmp_path / "home") for one in runs]

    assert all(answer["parted"] is None for answer in answers)
    told = [note for answer in answers for note in answer["notes"]]
    assert any("earlier release" in note for note in told)
    assert all(answer["compared"]["states"] == 0 for answer in answers)


def test_checkpoints_that_are_gone_are_told_and_the_rest_is_compared(project: Project, tmp_path: Path) -> None:
    shutil.copytree(project.home, tmp_path / "home")
    for pack in (tmp_path / "home" / "chunks" / "packs").glob("*.pack"):
        pack.unlink()

    found = relive.diverge(*project.ids("first", "rounded"), home=tmp_path / "home")

    assert found["parted"]["where"] == "epoch=4"
    assert found["compared"]["states"] == 0
    assert any("can't be read" in note for note in found["notes"])


# --- ranks ------------------------------------------------------------------------------------------------------------

RANKS = """
import os
import torch
import torch.distributed as dist
import relive

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 4) + rank
with relive.checkpointing(model=model, opt=opt, every=1):
    for epoch in relive.loop("epoch", range(4)):
        opt.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        for one in model.parameters():
            dist.all_reduce(one.grad)
            one.grad /= 2
        opt.step()
        if epoch == 2 and rank == relive.arg("astray", -1):
            with torch.no_grad():
                model.bias += 1e-4
        relive.log("loss", loss.item())
dist.destroy_process_group()
"""


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def launch_ranks(script: Any, *args: str) -> None:
    launch = {
        "RELIVE_WORLD_SIZE": "2", "RELIVE_LAUNCH": os.urandom(4).hex(), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    script.write(RANKS)
    started = [
        script.start(None, *args, env={**launch, "RELIVE_RANK": str(rank), "RANK": str(rank)}) for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in started]
    if any("No module named 'torch'" in error for error in errors):
        pytest.importorskip("torch")
    assert [process.returncode for process in started] == [0, 0], errors


def test_a_rank_that_went_astray_is_found(script: Any) -> None:
    launch_ranks(script)
    (right,) = (path.name for path in (script.home / "runs").iterdir())
    launch_ranks(script, "--kwargs", "astray=1")

    found = relive.diverge("last", home=script.home)

    assert found["verdict"] == "parted"
    assert found["parted"]["where"] == "epoch=2"
    assert found["parted"]["leaf"] == "model.bias"
    assert found["parted"]["last_agreed"] == "epoch=1"
    assert found["parted"]["groups"] == ((0,), (1,))
    assert found["parted"]["astray"] == ()  # two ranks have no majority
    assert relive.diverge(right, home=script.home)["verdict"] == "identical"
    beside = relive.diverge(right, "last", home=script.home)
    assert (beside["rank"], beside["parted"]["where"]) == (1, "epoch=2")
    assert beside["ranks"]["0"]["parted"]["where"] == "epoch=3"
    shown = script.relive("diverge", "--ranks", "last", check=False)
    assert shown.returncode == 1
    assert "parted" in shown.stdout
    assert "model.bias" in shown.stdout
