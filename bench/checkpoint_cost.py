"""What a checkpoint costs the training thread, the disk and a restore, beside memcpy, torch.save, DCP and fork."""

from __future__ import annotations

import io
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

from bench.measuring import project, report, run_script
from relive.checkpoint.io import Capture, CheckpointWriter, open_checkpoint
from relive.store import Home
from relive.store.chunks import Chunks, Packs
from relive.store.journal import line_schema, parse_run

REPEAT = 7
LAYERS = 20
# What a run itself says of its stalls: with the search for objects near the loop, and the variables that go with them.
SCRIPT = '''
import json, os, statistics, time
import numpy as np
import torch
import relive

megabytes, layers = int(os.environ["MEGABYTES"]), 20
width = max(48, int((megabytes * 1e6 / 4 / 3 / layers / 1.02) ** 0.5))


def block():
    return [torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU(), torch.nn.Dropout(0.1)]


net = torch.nn.Sequential(*[layer for _ in range(layers) for layer in block()])
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)


def train_step():
    optimizer.zero_grad()
    net(torch.randn(2, width)).pow(2).mean().backward()
    optimizer.step()


def copying(size):
    """One copy of so many bytes, timed."""
    source, target = np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8), np.zeros(size, np.uint8)

    def memcpy():
        begun = time.perf_counter()
        np.copyto(target, source)
        return time.perf_counter() - begun

    return memcpy


def main():
    with relive.checkpointing(net=net, optimizer=optimizer, every=2):
        for epoch in relive.loop("epoch", range(20)):
            train_step()
            if epoch % 2 == 0:
                time.sleep(0.3)  # the writer is done with the last one
                train_step()
    # After the loop: memory that a variable of the training leads to would be part of its checkpoints.
    memcpy = copying(3 * sum(parameter.nbytes for parameter in net.parameters()))
    copies = []
    for _ in range(10):
        train_step()
        copies.append(memcpy())
    with open(os.environ["BENCH_RESULT"], "w") as file:
        json.dump({"memcpy_s": statistics.median(copies)}, file)


main()
'''


class State:
    """A model and its AdamW, of about so many megabytes, in many tensors of many sizes."""

    def __init__(self, megabytes: int) -> None:
        torch.manual_seed(0)
        width = max(48, int((megabytes * 1e6 / 4 / 3 / LAYERS / 1.02) ** 0.5))
        layers = [layer for _ in range(LAYERS) for layer in _block(width)]
        self.net = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.width = width
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net(torch.randn(2, self.width)).pow(2).mean().backward()
        self.optimizer.step()

    def dicts(self) -> dict[str, Any]:
        return {"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}


def _block(width: int) -> list[torch.nn.Module]:
    return [torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU(), torch.nn.Dropout(0.1)]


def main() -> None:
    """One line per size."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    for megabytes in (10, 100, 500):
        _measure(megabytes)
        _in_a_run(megabytes)
    _frozen()


def _measure(megabytes: int) -> None:
    state = State(megabytes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keeper = _Keeper(folder, state)
        size = keeper.capture.size_bytes()
        source, target = np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8), np.zeros(size, np.uint8)
        stalls = _alternate(
            state,
            {
                "memcpy": lambda: np.copyto(target, source),
                "relive": keeper.take,
                "torch_save": lambda: torch.save(state.dicts(), folder / "saved.pt"),
                "dcp": lambda: _dcp(state, folder),
                "fork": lambda: _fork(state, folder),
            },
            {"relive": keeper.finish, "dcp": _dcp_wait, "fork": lambda: _reap(state)},
        )
        fork_after_s = max(0.0, _FORK_AFTER[-1] if _FORK_AFTER else 0.0)
        restore = _restores(state, keeper, folder)
    goals = {
        "stall_over_memcpy": "<= 1.5", "torch_save_ratio": ">= 6", "dcp_ratio": ">= 4", "fork_ratio": ">= 4",
        "restore_torch_load_ratio": ">= 3", "restore_over_raw_read": "<= 1.3", "bytes_over_torch_save": "<= 1",
    }  # fmt: skip
    ours = stalls["relive"]
    report(
        "checkpoint_cost", goals, megabytes=size / 1e6, leaves=len(keeper.capture._layout_key),
        stall_ms=ours * 1e3, stall_over_memcpy=ours / stalls["memcpy"],
        torch_save_ratio=stalls["torch_save"] / ours, dcp_ratio=stalls["dcp"] / ours,
        fork_ratio=(stalls["fork"] + fork_after_s) / ours, write_ms=keeper.written[-1].took_s * 1e3,
        bytes_over_torch_save=keeper.written[0].new_bytes / keeper.saved_bytes, **restore,
    )  # fmt: skip


def _in_a_run(megabytes: int) -> None:
    with project(SCRIPT) as folder:
        told = run_script(folder, MEGABYTES=str(megabytes))
        home = Home(folder / ".relive")
        lines = [line for run in home.run_ids() for journal in parse_run(home, run) for line in journal.lines]
    taken = line_schema.lines_of(line_schema.CheckpointTaken, lines)
    stalls = [line.stall_s for line in taken if line.place == "iteration"]
    stall_s = statistics.median(stalls[1:])  # the first one makes its memory ready
    report(
        "checkpoint_stall_in_a_run", {"stall_over_memcpy": "<= 1.5"}, megabytes=megabytes, checkpoints=len(stalls),
        stall_ms=stall_s * 1e3, stall_over_memcpy=stall_s / told["memcpy_s"],
    )  # fmt: skip


class _Keeper:
    def __init__(self, folder: Path, state: State) -> None:
        self.capture = Capture({"model": state.net, "optimizer": state.optimizer})
        self.capture.prepare()
        self.chunks, self.packs = Chunks(folder / "chunks"), Packs(folder / "packs")
        self.writer = CheckpointWriter(self.packs, self.chunks)
        self.written: list[Any] = []
        buffer = io.BytesIO()
        torch.save(state.dicts(), buffer)
        self.saved_bytes = len(buffer.getvalue())
        self.take()
        self.finish()

    def take(self) -> None:
        self.writer.begin(self.capture.take(), self.written.append)

    def finish(self) -> None:
        self.writer.wait()


_FORK_AFTER: list[float] = []
_PENDING: list[Any] = []


def _fork(state: State, folder: Path) -> None:
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        torch.save(state.dicts(), folder / "forked.pt")
        os._exit(0)
    _PENDING.append(child)


def _reap(state: State) -> None:
    """The page faults after a fork: how much longer the next update of the whole state takes."""
    begun = time.perf_counter()
    _touch(state)
    with_faults = time.perf_counter() - begun
    os.waitpid(_PENDING.pop(), 0)
    begun = time.perf_counter()
    _touch(state)
    _FORK_AFTER.append(with_faults - (time.perf_counter() - begun))
    _FORK_AFTER.sort()
    del _FORK_AFTER[: max(0, len(_FORK_AFTER) - REPEAT)]


def _touch(state: State) -> None:
    with torch.no_grad():
        for parameter in state.net.parameters():
            parameter.mul_(1.0)
        for moments in state.optimizer.state.values():
            for tensor in moments.values():
                tensor.mul_(1.0)


def _dcp(state: State, folder: Path) -> None:
    shutil.rmtree(folder / "dcp", ignore_errors=True)
    _PENDING.append(dcp.async_save(state.dicts(), checkpoint_id=str(folder / "dcp")))


def _dcp_wait() -> None:
    _PENDING.pop().result()


def _alternate(
    state: State, works: dict[str, Callable[[], Any]], afters: dict[str, Callable[[], Any]]
) -> dict[str, float]:
    """Each in turn, after a step that leaves the caches as training does; medians."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(REPEAT):
        for name, work in works.items():
            state.step()
            begun = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - begun)
            afters.get(name, lambda: None)()
    return {name: statistics.median(times) for name, times in taken.items()}


def _restores(state: State, keeper: _Keeper, folder: Path) -> dict[str, float]:
    torch.save(state.dicts(), folder / "saved.pt")
    into = {"model": state.net, "optimizer": state.optimizer}
    packs = [keeper.packs.folder / name for name in keeper.packs.names()]
    newest = packs[-1]
    buffer = np.zeros(newest.stat().st_size, np.uint8)

    def ours() -> None:
        open_checkpoint(keeper.written[-1].manifest, keeper.chunks, keeper.packs).restore(into, random=False)

    def theirs() -> None:
        loaded = torch.load(folder / "saved.pt")
        state.net.load_state_dict(loaded["model"])
        state.optimizer.load_state_dict(loaded["optimizer"])

    def raw() -> None:
        with newest.open("rb", buffering=0) as file:
            file.readinto(buffer)  # type: ignore[attr-defined]

    times = _alternate(state, {"ours": ours, "torch": theirs, "raw": raw}, {})
    return {
        "restore_ms": times["ours"] * 1e3, "restore_torch_load_ratio": times["torch"] / times["ours"],
        "restore_over_raw_read": times["ours"] / times["raw"],
    }  # fmt: skip


def _frozen() -> None:
    """Fine-tuning with SGD: 95 % of the weights never move."""
    state = State(100)
    layers = [layer for layer in state.net if isinstance(layer, torch.nn.Linear)]
    for layer in layers[:-1]:
        layer.requires_grad_(False)
    for norm in (layer for layer in state.net if isinstance(layer, torch.nn.LayerNorm)):
        norm.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in state.net.parameters() if p.requires_grad], lr=0.1)
    state.optimizer = optimizer
    state.step()
    changed = sum(p.numel() * 4 for p in state.net.parameters() if p.requires_grad)
    with tempfile.TemporaryDirectory() as name:
        keeper = _Keeper(Path(name), state)
        state.step()
        keeper.take()
        keeper.finish()
    new = keeper.written[-1].new_bytes
    goals = {"new_over_changed": "<= 1.05", "new_over_torch_save": "< 0.08"}
    report(
        "checkpoint_frozen", goals, new_bytes=new, new_over_changed=new / changed,
        new_over_torch_save=new / keeper.saved_bytes,
    )  # fmt: skip


if __name__ == "__main__":
    main()
