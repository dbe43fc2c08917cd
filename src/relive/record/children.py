"""Processes that a run's process starts: they log to journals of their own, in the same run."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from relive.record.recorder import Recorder
from relive.record.session import session
from relive.record.syncing import Syncer
from relive.store import Chunks, Home, Journal, JournalName

PID_SPACE = 1 << 22  # pids are below this; a reused pid gets a number above


class ChildJournal:
    """Stands in for a child's journal until its first record, so that silent workers leave no files."""

    def __init__(self, recorder: Recorder, folder: Path, rank: int, loops_begun: int) -> None:
        self._recorder = recorder
        self._folder = folder
        self._rank = rank
        self._loops_begun = loops_begun

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def opened_file(self, path: str) -> None:
        with contextlib.suppress(OSError):  # a worker that can't note an input goes on reading it
            self._recorder.journal.line("opened", path=path)

    def _real(self) -> Journal:
        journal = self._create()
        header = {"wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "pid": os.getpid()}
        journal.line("child", parent=os.getppid(), **header)
        self._recorder.journal = journal
        Syncer(journal, every_s=1.0).start()
        return journal

    def _create(self) -> Journal:
        process = os.getpid()
        while True:
            try:
                return Journal(self._folder / JournalName(self._rank, process).stem, loops_begun=self._loops_begun)
            except FileExistsError:
                process += PID_SPACE


def join_parent(variable: str | None) -> Recorder | None:
    """In a spawned worker: record into the run of the process that started it, if it has one."""
    if not variable:
        return None
    try:
        belongs = msgspec.json.decode(variable)
        home, run, rank = Home(Path(belongs["home"])), str(belongs["run"]), int(belongs["rank"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None
    folder = home.run_folder(run)
    if not folder.is_dir():
        return None
    recorder = Recorder(run, None, Chunks(home.chunks), kwargs=session.kwargs)  # type: ignore[arg-type]
    recorder.journal = ChildJournal(recorder, folder, rank, 0)  # type: ignore[assignment]
    return recorder
