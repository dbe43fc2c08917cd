"""Laws of copying: every method plan all bytes, and tensors that have moved are detected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive.checkpoint.io.capture import Capture
from relive.checkpoint.io.checkpoint_reader import Checkpoint, open_checkpoint
from relive.checkpoint.io.checkpoint_writer import CheckpointWriter, WrittenCheckpoint
from relive.checkpoint.memory import parallel_copy
from relive.checkpoint.memory.parallel_copy import RETRY_EVERY, Copier, CopyPlan, split_copy
from relive.store.chunks import Chunks, Packs

torch = pytest.importorskip("torch")
nn = torch.nn


def _noise(size_bytes: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 255, size_bytes, dtype=np.uint8)


def test_every_copy_method_gives_the_same_bytes() -> None:
    source, target = _noise(5_000_001, 0), np.zeros(5_000_001, np.uint8)
    plan, copier = CopyPlan(split_copy(target, source)), Copier()
    for iteration in range(2 * RETRY_EVERY + 2):  # every method has been used by then
        source[:] = _noise(len(source), iteration)
        target[:] = 0
        copier.copy(plan)

        assert np.array_equal(target, source)


def test_large_copies_are_shared_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_copy, "WORTH_SHARING_BYTES", 1 << 20)
    monkeypatch.setattr(parallel_copy, "PART_BYTES", 100_000)
    source, target = _noise(5_000_001, 0), np.zeros(5_000_001, np.uint8)
    plan, copier = CopyPlan(split_copy(target, source)), Copier()
    for iteration in range(5):
        source[:] = _noise(len(source), iteration)
        copier.copy(plan)

        assert np.array_equal(target, source)


def test_a_copy_that_is_begun_goes_on_while_the_caller_works() -> None:
    source, target = _noise(40_000_001, 0), np.zeros(40_000_001, np.uint8)
    plan, copier = CopyPlan(split_copy(target, source)), Copier()
    for iteration in range(3):
        source[:] = _noise(len(source), iteration)
        copier.copy(plan)  # may leave a job behind that the helper thread had no time for
        target[:] = 0
        finish = copier.begin(plan)

        assert finish is not None
        assert finish()
        assert np.array_equal(target, source)


# A pool for a second thread would make OpenMP count more threads than cores, and those of the training would sleep.
POOL = """
import os, threading
import numpy as np, torch
from relive.checkpoint.memory.parallel_copy import Copier, CopyPlan, split_copy

torch.set_num_threads(4)
torch.randn(1_000_000).add_(1)  # the training's own pool
source, target = np.ones(8_000_003, np.uint8), np.zeros(8_000_003, np.uint8)
copier = Copier()
before = len(os.listdir("/proc/self/task"))
assert copier.begin(CopyPlan(split_copy(target, source)))()
assert np.array_equal(target, source)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_copy_in_the_background_makes_no_second_pool_of_threads() -> None:
    told = subprocess.run([sys.executable, "-c", POOL], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "1"  # the helper thread itself


def test_a_copy_that_fails_says_so() -> None:
    plan = CopyPlan([(np.zeros(3, np.uint8), np.zeros(3, np.uint8))])
    plan.in_one_call = lambda: 1 / 0
    finish = Copier().begin(plan)

    assert finish is not None
    assert not finish()


def test_read_only_arrays_are_copied_too() -> None:
    source, target = _noise(100_000, 0), np.zeros(100_000, np.uint8)
    source.flags.writeable = False
    Copier().copy(CopyPlan(split_copy(target, source)))

    assert np.array_equal(target, source)


def _take_checkpoint(folder: Path, capture: Capture) -> Checkpoint:
    chunks, packs = Chunks(folder / "chunks"), Packs(folder / "packs")
    done: list[WrittenCheckpoint] = []
    CheckpointWriter(packs, chunks).write(capture.take({}), done.append)
    return open_checkpoint(done[0].manifest, chunks, packs)


CHANGES = {
    "another memory": lambda net, n: setattr(net[0].weight, "data", torch.full((n, n), 7.0)),
    "another layout of the same memory": lambda net, n: setattr(net[0].weight, "data", net[0].weight.data.t()),
    "another shape of the same memory": lambda net, n: setattr(net[0].weight, "data", net[0].weight.data.view(n * n)),
    "another parameter": lambda net, n: setattr(net[0], "weight", nn.Parameter(torch.ones(n, n))),
    "another module": lambda net, n: net.__setitem__(0, nn.Linear(n, n)),
    "another type": lambda net, n: net.double(),
    "a further module": lambda net, n: net.append(nn.Linear(n, 1)),
    "less memory": lambda net, n: setattr(net[0].weight, "data", torch.ones(1)),
    "in place": lambda net, n: net[0].weight.data.add_(1),
}


@pytest.mark.parametrize("width", [3, 300])  # 300: worth copying while the state is looked at
@pytest.mark.parametrize("change", CHANGES)
def test_changes_since_the_last_checkpoint_are_captured(tmp_path: Path, change: str, width: int) -> None:
    net = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    capture = Capture({"model": net})
    for _ in range(3):  # from the second one on, the memory of the one before is copied early
        capture.take({})
    CHANGES[change](net, width)

    state = _take_checkpoint(tmp_path, capture).state("model")

    assert list(state) == list(net.state_dict())
    for name, tensor in net.state_dict().items():
        assert state[name].dtype == tensor.dtype
        assert torch.equal(state[name], tensor), name
