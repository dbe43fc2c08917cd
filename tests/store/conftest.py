"""Runs with values, artifacts and checkpoints, recorded inside the test process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from relive.checkpoint.io import CheckpointWriter, open_checkpoint
from relive.checkpoint.io.capture import Capture
from relive.checkpoint.io.checkpoint_writer import WrittenCheckpoint
from relive.record.provenance.artifact_capture import store_artifact
from relive.store import Home, list_journals
from relive.store.chunks import Chunks, Packs, list_kept_checkpoints
from relive.store.journal import (
    ROOT,
    Journal,
    encode_value,
    line_schema,
    parse_run,
    process_start_stamp,
    read_lines,  # fmt: skip
)

HOT, FROZEN = 20_000, 5_000  # array sizes: numbers that change with each checkpoint, and numbers that never do


def hot(seed: int, iteration: int) -> Any:
    return np.random.default_rng([seed, iteration]).random(HOT)


class Recording:
    """One run. Its seed determines its state after each iteration, so that a restored state can be checked."""

    def __init__(self, home: Home, seed: int = 0, *, rank: int = 0, run: str | None = None) -> None:
        home.create()
        self.home, self.seed, self.iteration = home, seed, -1
        self.run = run or home.new_run()
        self.folder = home.run_folder(self.run)
        self.journal = Journal(self.folder / str(rank))
        self.journal.line(
            line_schema.RunStarted, run=self.run, rank=rank, wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(),
            pid=os.getpid(), start=process_start_stamp(os.getpid()), host=socket.gethostname(),
        )  # fmt: skip
        self.loop = self.journal.begin_loop("epoch", ROOT, 0)
        self.chunks = Chunks(home.chunks)
        self._hot = hot(seed, 0)
        frozen = np.random.default_rng(99).random(FROZEN)
        self.frozen_bytes = frozen.nbytes
        subjects = {"hot": self._hot, "frozen": frozen}
        self._capture = Capture(subjects)
        self._writer = CheckpointWriter(Packs(home.packs), self.chunks)

    def checkpoint(self, *, again: bool = False) -> str:
        """Runs an iteration, takes a checkpoint and returns its manifest; `again` leaves the state unchanged."""
        self.iteration += 1
        state = self.iteration - again
        self._hot[:] = hot(self.seed, state)
        written: list[WrittenCheckpoint] = []

        def done(one: WrittenCheckpoint) -> None:
            written.append(one)
            self.journal.line(
                line_schema.CheckpointTaken, self.loop, self.iteration, place="iteration", name="epoch",
                manifest=one.manifest, bytes=one.size_bytes, new_bytes=one.new_bytes, stall_s=0.001, write_s=one.took_s,
            )  # fmt: skip

        self._writer.write(self._capture.take({"seed": self.seed, "state": state}), done)
        return written[0].manifest

    def log(self, name: str, value: Any) -> None:
        self.journal.line(
            line_schema.ValueLogged, name=self.journal.name_id(name), value=encode_value(value, self.chunks.put)
        )

    def artifact(self, value: Any) -> None:
        self.journal.line(line_schema.ArtifactKept, **(store_artifact(value, None, self.chunks) or {}))

    def finish(self) -> Recording:
        self.journal.end_loop(self.loop, self.iteration + 1)
        self.journal.line(line_schema.RunEnded, outcome="finished", error=None, wall_ns=time.time_ns())
        self.journal.close()
        return self


def shown(home: Home) -> dict[str, list[int]]:
    """Returns run → epochs of the checkpoints that readers see, after restoring each and checking its state."""
    found: dict[str, list[int]] = {}
    for run in home.run_ids():
        rows = list_kept_checkpoints(home.run_folder(run), parse_run(home, run))
        for row in rows:
            checkpoint = open_checkpoint(row.manifest, Chunks(home.chunks), Packs(home.packs))
            (array,) = checkpoint.state("hot").values()
            assert np.array_equal(array, hot(checkpoint.extra("seed"), checkpoint.extra("state")))
            checkpoint.state("frozen")
        found[run] = [row.at["epoch"] for row in rows]
    return found


def named_chunks(home: Home) -> set[str]:
    """Returns every chunk that a journal line refers to, found by walking the lines."""

    def inside(form: Any) -> set[str]:
        if isinstance(form, dict):
            direct = {form["chunk"]} if "chunk" in form else set(form.get("chunks", []))
            return direct.union(*map(inside, form.values()))
        return set().union(*map(inside, form)) if isinstance(form, list) else set()

    paths = [path for run in home.run_ids() for _, path in list_journals(home.run_folder(run))]
    return inside([msgspec.to_builtins(read_lines(path).lines) for path in paths])


@pytest.fixture(name="shown")
def shown_fixture() -> Callable[[Home], dict[str, list[int]]]:
    return shown


@pytest.fixture(name="named_chunks")
def named_chunks_fixture() -> Callable[[Home], set[str]]:
    return named_chunks


@pytest.fixture
def store(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def record(store: Home) -> Callable[..., Recording]:
    """Begins a run: `record(seed=1)`. With `checkpoints=5` it takes five checkpoints and finishes the run."""

    def begin(seed: int = 0, *, checkpoints: int = 0, **how: Any) -> Recording:
        recording = Recording(store, seed, **how)
        for _ in range(checkpoints):
            recording.checkpoint()
        return recording.finish() if checkpoints else recording

    return begin
