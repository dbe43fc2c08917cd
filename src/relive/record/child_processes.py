"""Processes that a run's process starts: they log to journals of their own, in the same run."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from relive.record.off import EndedJournal, NullJournal
from relive.record.process import LaunchContext, Syncer, detect
from relive.record.recorder import Recorder
from relive.record.session import session
from relive.store import Home, JournalName, journals_in
from relive.store.chunks import Chunks
from relive.store.journal import Journal, is_alive, read_lines

PID_SPACE = 1 << 22  # pids are below this; a reused pid gets a number above
RECENT_RUNS = 50  # among so many a worker looks for the run of its parent


class ChildJournal:
    """Stands in for a child's journal until its first record, so that silent workers leave no files."""

    def __init__(self, recorder: Recorder, folder: Path, rank: int, loops_begun: int) -> None:
        self._recorder = recorder
        self._folder = folder
        self._rank = rank
        self._loops_begun = loops_begun
        self._making = threading.RLock()
        self._made: Journal | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def loops_begun(self) -> int:
        return self._loops_begun if self._made is None else self._made.loops_begun()

    def opened_file(self, path: str) -> None:
        with contextlib.suppress(OSError):  # a worker that can't note an input goes on reading it
            self._recorder.journal.line("opened", path=path)

    def _real(self) -> Journal:
        with self._making:
            if self._made is None:
                self._made = journal = self._create()
                header = {"wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "pid": os.getpid()}
                journal.line("child", parent=os.getppid(), **header)
                self._recorder.journal = journal
                with contextlib.suppress(RuntimeError):  # no thread can be started: only a power cut can take values
                    Syncer(journal, every_s=1.0).start()
            return self._made

    def _create(self) -> Journal:
        process = os.getpid()
        # A worker may have got a rank that its parent has not: torch.multiprocessing.spawn.
        launched = detect()
        rank = launched.rank if launched.world_size > 1 else self._rank
        while True:
            try:
                return Journal(self._folder / JournalName(rank, process).stem, loops_begun=self._loops_begun)
            except FileExistsError:
                process += PID_SPACE


class ProcessMember(NamedTuple):
    """A process of a run, and what becomes of it in a forked child."""

    recorder: Recorder
    folder: Path
    rank: int

    def become_child(self) -> ChildJournal | None:
        """The journal belongs to the parent, so log to one of our own, made when needed."""
        inherited = self.recorder.journal
        if isinstance(inherited, EndedJournal | NullJournal):
            return None
        child = ChildJournal(self.recorder, self.folder, self.rank, inherited.loops_begun())
        if isinstance(inherited, Journal):
            inherited.abandon()
        self.recorder.journal = child  # type: ignore[assignment]
        self.recorder.checks_kwargs = False
        self.recorder.provenance = None
        return child


def join_parent(variable: str | None, around: LaunchContext) -> ProcessMember | None:
    """In a worker: record into the run of the process that started it, if it has one."""
    told = _read(variable) or _run_of_parent(around.home)
    if told is None:
        return None
    home, run, rank = Home(Path(told["home"])), told["run"], told["rank"]
    session.kwargs.update(told["kwargs"])
    recorder = Recorder(run, None, Chunks(home.chunks))  # type: ignore[arg-type]
    recorder.journal = ChildJournal(recorder, home.run_folder(run), rank, 0)  # type: ignore[assignment]
    return ProcessMember(recorder, home.run_folder(run), rank)


def read_told(variable: str | None) -> Any:
    """What our parent told us in a variable, if it did."""
    if not variable:
        return None
    import json  # it reads names that are no text, too

    try:
        return json.loads(variable)
    except ValueError:
        return None


def _read(variable: str | None) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = read_told(variable)
        there = Home(Path(told["home"])).run_folder(told["run"]).is_dir()
    except (KeyError, TypeError):
        return None
    return told if there else None


def _run_of_parent(home: Home) -> dict[str, Any] | None:
    """The newest run of the process that started us, which it opened when we were there already."""
    from multiprocessing import parent_process

    parent = parent_process()
    pid = parent.pid if parent is not None else None
    folders = sorted((home.run_folder(run) for run in home.run_ids()), key=_changed_ns, reverse=True)
    for folder in folders[:RECENT_RUNS]:
        for name, path in journals_in(folder):
            header = next(iter(read_lines(path).lines), {}) if not name.process else {}
            if header.get("pid") == pid and is_alive(pid, header.get("start")):
                return {"home": str(home.path), "run": folder.name, "rank": name.rank, "kwargs": {}}
    return None


def _changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
