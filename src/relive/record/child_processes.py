"""Child processes of a run: each logs to a journal of its own in the same run folder."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from relive.record.journal_driver import JournalDriver
from relive.record.off import EndedJournal, NullJournal
from relive.record.process import JournalSyncer, LaunchContext, PausedJournal, detect_launch
from relive.record.provenance import SecretFilter
from relive.record.recorder import Recorder
from relive.record.session import session
from relive.store import Home, JournalName, list_journals
from relive.store.chunks import Chunks
from relive.store.journal import Journal, first_line, is_process_alive, line_schema

PID_SPACE = 1 << 22  # pids are below this; a journal of a reused pid gets a number above it
RECENT_RUNS = 50  # how many runs a worker searches for the one of its parent


class ChildJournal:
    """Proxy for a child's journal, created with its first record: workers that log nothing leave no files."""

    def __init__(self, driver: JournalDriver, folder: Path, rank: int, loops_begun: int) -> None:
        self._driver = driver
        self._folder = folder
        self._rank = rank
        self._loops_begun = loops_begun
        self._lock = threading.RLock()
        self._journal: Journal | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open(), name)

    def loops_begun(self) -> int:
        return self._loops_begun if self._journal is None else self._journal.loops_begun()

    def opened_file(self, path: str) -> None:
        with contextlib.suppress(OSError):  # a worker that can't record an input still reads it
            self._driver.journal.line(line_schema.InputOpened, path=path)

    def _open(self) -> Journal:
        with self._lock:
            if self._journal is None:
                self._journal = journal = self._create()
                header = {"wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "pid": os.getpid()}
                journal.line(line_schema.ChildStarted, parent=os.getppid(), **header)
                self._driver.journal = journal
                with contextlib.suppress(RuntimeError):  # no thread can be started: then a power cut may lose values
                    JournalSyncer(journal, every_s=1.0).start()
            return self._journal

    def _create(self) -> Journal:
        process = os.getpid()
        # A worker may have a rank although its parent has none: torch.multiprocessing.spawn.
        launched = detect_launch()
        rank = launched.rank if launched.world_size > 1 else self._rank
        while True:
            try:
                return Journal(self._folder / JournalName(rank, process).stem, loops_begun=self._loops_begun)
            except FileExistsError:
                process += PID_SPACE


class ProcessMember(NamedTuple):
    """A process that records into a run; prepares its driver for forked children."""

    driver: JournalDriver
    folder: Path
    rank: int

    def become_child(self) -> ChildJournal | None:
        """In a forked child: replaces the journal of the parent by a new one, created with the first record."""
        inherited = self.driver.journal
        if isinstance(inherited, EndedJournal | NullJournal | PausedJournal):
            return None
        child = ChildJournal(self.driver, self.folder, self.rank, inherited.loops_begun())
        if isinstance(inherited, Journal):
            inherited.abandon()
        self.driver.continue_in_child(child)  # type: ignore[arg-type]
        return child


def join_parent_run(variable: str | None, context: LaunchContext) -> ProcessMember | None:
    """In a worker: records into the run of the process that started it, if there is one."""
    parent = _read_parent_run(variable) or _find_parent_run(context.home)
    if parent is None:
        return None
    home, run, rank = Home(Path(parent["home"])), parent["run"], parent["rank"]
    session.kwargs.update(parent["kwargs"])
    secrets = SecretFilter(context.settings.secret_patterns)
    recorder = Recorder(run, None, Chunks(home.chunks), secrets)  # type: ignore[arg-type]
    recorder.journal = ChildJournal(recorder, home.run_folder(run), rank, 0)  # type: ignore[assignment]
    return ProcessMember(recorder, home.run_folder(run), rank)


def parse_parent_variable(variable: str | None) -> Any:
    """Decodes the environment variable that the parent process set; None if it is missing or invalid."""
    if not variable:
        return None
    import json  # decodes lone surrogates, unlike `from_json`

    try:
        return json.loads(variable)
    except ValueError:
        return None


def _read_parent_run(variable: str | None) -> dict[str, Any] | None:
    try:
        parent: dict[str, Any] = parse_parent_variable(variable)
        exists = Home(Path(parent["home"])).run_folder(parent["run"]).is_dir()
    except (KeyError, TypeError):
        return None
    return parent if exists else None


def _find_parent_run(home: Home) -> dict[str, Any] | None:
    """Finds the newest run of the parent process, for a worker that was started before the run was opened."""
    from multiprocessing import parent_process

    parent = parent_process()
    pid = parent.pid if parent is not None else None
    folders = sorted((home.run_folder(run) for run in home.run_ids()), key=_modified_ns, reverse=True)
    for folder in folders[:RECENT_RUNS]:
        for name, path in list_journals(folder):
            header = None if name.process else first_line(path)
            is_parents = isinstance(header, line_schema.RunStarted) and header.pid == pid
            if is_parents and is_process_alive(pid, header.start):  # type: ignore[union-attr]
                return {"home": str(home.path), "run": folder.name, "rank": name.rank, "kwargs": {}}
    return None


def _modified_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
