"""How a run begins and ends: who we are, where it goes, what is captured, and what forked children do."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from relive.errors import ReliveError, VersionError
from relive.record import environment, launch
from relive.record.children import ChildJournal, join_parent
from relive.record.fingerprint import FingerprintCache
from relive.record.inputs import InputWatch
from relive.record.off import Off
from relive.record.outcome import ExitWatch, describe
from relive.record.provenance import Provenance
from relive.record.recorder import Recorder
from relive.record.rendezvous import shared_run
from relive.record.session import Driver, session
from relive.record.surroundings import Surroundings, look_around
from relive.record.syncing import Syncer
from relive.record.warnings import warn_once
from relive.store import Chunks, Journal, JournalName, encode, process_start, versions

PARENT_VARIABLE = "RELIVE_PARENT"  # tells child processes which run they belong to or come from


def open_driver() -> Driver:
    """What the first verb of a process opens. Never fails: at worst there is a warning and nothing is recorded."""
    try:
        around = look_around()
        if around.settings.off:
            return Off()
        if launch.is_pool_worker():
            return join_parent(os.environ.get(PARENT_VARIABLE)) or Off()
        return OpenRun(around).recorder
    except Exception as error:  # noqa: BLE001 - the user's training must go on
        warn_once("recording-off", f"{type(error).__name__}: {error}; this run is not recorded")
        return Off()


def open_explicitly(name: str, tags: dict[str, Any]) -> OpenRun | None:
    """What `with relive.run(...)` opens; None when relive is off or can't record here."""
    try:
        around = look_around()
        return None if around.settings.off or launch.is_pool_worker() else OpenRun(around, name=name, tags=tags)
    except Exception as error:  # noqa: BLE001 - the user's training must go on
        warn_once("recording-off", f"{type(error).__name__}: {error}; this run is not recorded")
        return None


class OpenRun:
    """A run being recorded by the process that began it."""

    def __init__(self, around: Surroundings, *, name: str = "", tags: dict[str, Any] | None = None) -> None:
        self._pid = os.getpid()
        self._around = around
        home = around.home
        home.create()
        rank = around.launched.rank
        if around.launched.world_size > 1 and around.launched.key is None:
            warn_once(
                "launch-unknown", "each rank is a run of its own; set RELIVE_LAUNCH to the same text on all ranks"
            )
        self.run = shared_run(home, around.launched.key, rank) if around.launched.key else home.new_run()
        self.folder = home.run_folder(self.run)
        journal = Journal(self.folder / JournalName(rank).stem)
        self.recorder = Recorder(self.run, journal, Chunks(home.chunks), kwargs=session.kwargs)
        self.recorder.source = Path(around.entry.script) if around.entry.script else None
        self._parent_variable = os.environ.get(PARENT_VARIABLE)
        journal.line("run", **_header(self.run, around, name, tags, self._parent_variable))
        self._watch = InputWatch(root=around.entry.root, home=str(home.path)) if around.settings.inputs else None
        self._exit = ExitWatch()
        self._syncer = Syncer(journal, around.settings.sync_seconds)
        self._begin(rank)

    def _begin(self, rank: int) -> None:
        settings, journal = self._around.settings, self.recorder.journal
        if rank == 0 and settings.versions:
            self._take_version()
        self._syncer.start()
        cache = FingerprintCache(self._around.home.path / "fingerprints.sqlite")
        full_bytes = settings.fingerprint_bytes
        self.recorder.provenance = Provenance(journal, cache, full_bytes=full_bytes, watch=self._watch)
        self.recorder.provenance.start()
        self._exit.written = journal.written
        self._exit.install()
        belongs = {"home": str(self._around.home.path), "run": self.run, "rank": rank}
        os.environ[PARENT_VARIABLE] = msgspec.json.encode(belongs).decode()
        _HOOKS.add(self)

    def _take_version(self) -> None:
        settings = self._around.settings
        try:
            taken = versions.take(
                Path(self._around.entry.root), home=self._around.home.path, large_bytes=settings.large_file_bytes,
                untracked_files=settings.untracked_files, untracked_bytes=settings.untracked_bytes,
            )  # fmt: skip
        except VersionError as error:
            self.recorder.journal.line("warning", slug="no-version", message=str(error))
            warn_once("no-version", f"{error}; the run goes on without its code version")
            return
        self.recorder.journal.line("version", **dataclasses.asdict(taken))

    def close(self, error: BaseException | None = None) -> None:
        """End the run; called at exit, or at the end of `with relive.run()`."""
        if os.getpid() != self._pid or self not in _HOOKS.runs:
            return
        _HOOKS.runs.remove(self)
        self._exit.remove()
        with _training_goes_on():
            outcome, found = ("failed", describe(error)) if error is not None else self._exit.outcome()
            self._say_unknown_kwargs()
            self._finish(outcome, found)
        if self._parent_variable is None:
            os.environ.pop(PARENT_VARIABLE, None)
        else:
            os.environ[PARENT_VARIABLE] = self._parent_variable
        if session.driver is self.recorder:
            session.driver = None

    def _finish(self, outcome: str, error: dict[str, Any] | None) -> None:
        journal = self.recorder.journal
        if not isinstance(journal, Journal):
            return
        if self.recorder.provenance is not None:
            self.recorder.provenance.finish(self.folder)
        journal.line("end", outcome=outcome, error=error, wall_ns=time.time_ns())
        self._syncer.stop()
        journal.close()

    def _say_unknown_kwargs(self) -> None:
        message = self.recorder.unknown_kwargs()
        if message:
            print(f"relive: error: {message}", file=sys.stderr)

    def become_child(self) -> None:
        """We are a forked copy: the journal belongs to the parent, so log to one of our own, made when needed."""
        inherited = self.recorder.journal
        if not isinstance(inherited, Journal):
            return
        child = ChildJournal(self.recorder, self.folder, self._around.launched.rank, inherited.loops_begun())
        inherited.abandon()
        self.recorder.journal = child  # type: ignore[assignment]
        self.recorder.provenance = None
        if self._watch is not None:
            self._watch.on_new = child.opened_file


class _Hooks:
    """The process-wide hooks, set when the first run opens: at exit, and after a fork."""

    def __init__(self) -> None:
        self.runs: list[OpenRun] = []
        self._set = False

    def add(self, run: OpenRun) -> None:
        self.runs.append(run)
        if not self._set:
            self._set = True
            atexit.register(self.close_all)
            os.register_at_fork(after_in_child=self.after_fork)

    def close_all(self) -> None:
        for run in reversed(self.runs.copy()):
            run.close()

    def after_fork(self) -> None:
        for run in self.runs:
            with _training_goes_on():
                run.become_child()


_HOOKS = _Hooks()


@contextlib.contextmanager
def _training_goes_on() -> Any:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the user's exit code and output must stay what they were
        warn_once("end-incomplete", f"{type(error).__name__}: {error}; the end of this run may be missing")


def _header(
    run: str, around: Surroundings, name: str, tags: dict[str, Any] | None, parent: str | None
) -> dict[str, Any]:
    entry, launched = around.entry, around.launched
    return {
        "run": run, "name": name, "tags": encode(tags or {}, _refuse_chunk), "project": around.project,
        "rank": launched.rank, "world_size": launched.world_size, "local_rank": launched.local_rank,
        "pid": os.getpid(), "start": process_start(os.getpid()), "host": socket.gethostname(),
        "wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "entry": dataclasses.asdict(entry),
        "parent": _parent_run(parent), "argv": environment.redact_argv(sys.argv),
        "environment": environment.quick(os.environ, sys.argv, extra=around.settings.variables),
    }  # fmt: skip


def _parent_run(variable: str | None) -> str | None:
    if not variable:
        return None
    try:
        found = msgspec.json.decode(variable)
        return str(found["run"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _refuse_chunk(_data: bytes) -> str:
    raise ReliveError("tags are for short values; log big ones or keep them as an artifact")
