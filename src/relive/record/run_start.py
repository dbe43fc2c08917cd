"""How a run begins and ends: who we are, where it goes, what is captured, and what forked children do."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.errors import VersionError
from relive.model import FINISHED
from relive.record.child_processes import ProcessMember, join_parent, read_told
from relive.record.off import Ended, EndedJournal, Off
from relive.record.outcome import Ending, ExitWatch, ended_by, exit_of_worker, interrupt_kept
from relive.record.process import (
    LaunchContext,
    Syncer,
    is_users,
    launch,
    read_launch_context,
    say,
    shared_run,
    warn_once,
)
from relive.record.provenance import InputWatch, Provenance, runtime_environment
from relive.record.recorder import Recorder
from relive.record.session import Driver, here, session
from relive.store import JournalName
from relive.store.chunks import Chunks
from relive.store.journal import Journal, age_s, encode_value, process_start, to_text

if TYPE_CHECKING:
    from relive.record.process import Shipper

PARENT_VARIABLE = "RELIVE_PARENT"  # tells child processes which run they belong to or come from


def open_driver() -> Driver:
    """What the first verb of a process opens. Never fails: at worst there is a warning and nothing is recorded."""
    try:
        around = read_launch_context()
        if around.settings.off:
            return Off()
        joined = join_parent(os.environ.get(PARENT_VARIABLE), around) if launch.is_pool_worker() else None
        if joined is None:
            return OpenRun(around).recorder
        _HOOKS.watch_forks(joined)
        return joined.recorder
    except Exception as error:  # the user's training must go on
        if is_users(error):
            raise
        warn_once("recording-off", f"{type(error).__name__}: {error}; this run is not recorded")
        return Off()


def open_explicitly(name: str, tags: dict[str, Any]) -> OpenRun | None:
    """What `with relive.run(...)` opens; None when relive is off or can't record here."""
    try:
        around = read_launch_context()
        return None if around.settings.off else OpenRun(around, name=name, tags=tags, nth=_HOOKS.next_explicit())
    except Exception as error:  # the user's training must go on
        if is_users(error):
            raise
        warn_once("recording-off", f"{type(error).__name__}: {error}; this run is not recorded")
        return None


class OpenRun:
    """A run being recorded by the process that began it."""

    def __init__(
        self, around: LaunchContext, *, name: str = "", tags: dict[str, Any] | None = None, nth: int = 0
    ) -> None:
        self._pid = os.getpid()
        self._around = around
        home = around.home
        home.create()
        rank = around.launched.rank
        if around.launched.world_size > 1 and around.launched.key is None:
            warn_once(
                "launch-unknown", "each rank is a run of its own; set RELIVE_LAUNCH to the same text on all ranks"
            )
        key = _HOOKS.launch_key(around.launched.key)
        self.run = shared_run(home, key, rank) if key else home.new_run()
        self.folder = home.run_folder(self.run)
        journal = Journal(self.folder / JournalName(rank).stem)
        self.recorder = Recorder(self.run, journal, Chunks(home.chunks))
        self.recorder.checks_kwargs = True
        self.recorder.overhead, self.recorder.every = around.settings.overhead, around.settings.every or None
        self.recorder.rank, self.recorder.launched_in = rank, self.folder if key else None
        self.recorder.source = Path(around.entry.script) if around.entry.script else None
        # The how manieth `with relive.run()` of its process it is tells a replay which of them is meant.
        told = {
            "name": name,
            "tags": encode_value({**_sweep_tags(os.environ), **(tags or {})}, self.recorder.chunks.put),
            "nth": nth,
        }
        journal.line("run", **_storable(_header(self.run, around, told)))
        self._watch = InputWatch(root=around.entry.root, home=str(home.path)) if around.settings.inputs else None
        self._exit = ExitWatch()
        self._syncer: Syncer | None = None
        self._shipper: Shipper | None = None
        _HOOKS.add(self)
        # From here on values are kept, so whatever fails now must not take the run away.
        with _training_goes_on("provenance-incomplete"):
            if rank == 0 and around.settings.versions:
                self._take_version()
        with _training_goes_on("sync-failed"):
            self._syncer = Syncer(journal, around.settings.sync_seconds)
            self._syncer.start()
        with _training_goes_on("sending-stopped"):
            self._start_shipping(rank)
        with _training_goes_on("provenance-incomplete"):
            self._trace_origin(journal)
        with _training_goes_on("end-incomplete"):
            self._exit.install()
        _HOOKS.watch_forks()

    def _start_shipping(self, rank: int) -> None:
        settings = self._around.settings
        if settings.server:
            from relive.record.process import Shipper  # it loads an HTTP client

            self._shipper = Shipper(
                self._around.home, self.run, rank, url=settings.server, token=settings.token,
                every_s=settings.ship_seconds,
            )  # fmt: skip
            self._shipper.start()

    def belongs(self) -> str:
        """What child processes are told, as the value of a variable."""
        home, rank = str(self._around.home.path), self._around.launched.rank
        told = {"home": home, "run": self.run, "rank": rank, "kwargs": session.kwargs}
        try:
            return to_text(told)
        except UnicodeEncodeError:  # paths and arguments that are no text; only this knows how to write them
            import json

            return json.dumps(told)

    def _trace_origin(self, journal: Journal) -> None:
        known = self._around.home.path / "fingerprints.sqlite"
        full_bytes = self._around.settings.fingerprint_bytes
        provenance = Provenance(journal, known, full_bytes=full_bytes, watch=self._watch)
        provenance.start()
        self.recorder.provenance = provenance

    def _take_version(self) -> None:
        from relive.store.versions import code_versions

        settings = self._around.settings
        asking, session.asked_git = session.asked_git, None
        try:
            taken = code_versions.take(
                Path(self._around.entry.root), home=self._around.home.path, large_bytes=settings.large_file_bytes,
                untracked_files=settings.untracked_files, untracked_bytes=settings.untracked_bytes,
                asking=asking,
            )  # fmt: skip
        except VersionError as error:
            self.recorder.journal.line("warning", slug="no-version", message=str(error))
            warn_once("no-version", f"{error}; the run goes on without its code version")
            return
        self.recorder.journal.line("version", **taken._asdict() | {"large": [file._asdict() for file in taken.large]})

    def close(self, error: BaseException | None = None) -> None:
        """End the run as `with relive.run()` was left: by an error, or at its end."""
        self._close(lambda: ended_by(error) if error is not None else (FINISHED, None))

    def close_at_exit(self) -> None:
        self._close(self._exit.outcome)

    def _close(self, find_ending: Callable[[], Ending]) -> None:
        if os.getpid() != self._pid or self not in _HOOKS.runs:
            return
        _HOOKS.remove(self)
        with _training_goes_on("end-incomplete"):
            ending = find_ending()
            self._exit.remove()
            self._finish(*ending)

    def _finish(self, outcome: str, error: dict[str, Any] | None) -> None:
        journal, provenance = self.recorder.stopped or self.recorder.journal, self.recorder.provenance
        if self.recorder.too_deep[0]:
            warn_once("log-lost", "something was logged too deep in a recursion; raise sys.setrecursionlimit")
        try:
            self.recorder.finish_blocks()
            with _training_goes_on("provenance-incomplete"):
                if provenance is not None:
                    provenance.finish(self.folder)
            end = {"outcome": outcome, "error": error, "wall_ns": time.time_ns()}
            if self.recorder.stopped is None:
                journal.line("end", **end)
        finally:
            if self._syncer is not None:
                self._syncer.stop()
        journal.close()
        if self.recorder.stopped is not None:
            journal.last_line("end", **end)
        if self._shipper is not None:
            self._shipper.stop(self._around.settings.ship_wait_seconds)
        self.recorder.journal, self.recorder.provenance = EndedJournal(), None  # type: ignore[assignment]

    def become_child(self) -> None:
        self.recorder.forget_checkpoints()
        child = ProcessMember(self.recorder, self.folder, self._around.launched.rank).become_child()
        if self._watch is not None and child is not None:
            self._watch.on_new = child.opened_file


class _Hooks:
    """The process-wide hooks, set when the first run opens: at exit, and after a fork."""

    def __init__(self) -> None:
        self.runs: list[OpenRun] = []
        self._opened = self._explicit = 0
        self._set = self._watches_forks = False
        self._joined: ProcessMember | None = None  # of a worker that belongs to a run of its parent
        self._pid = 0  # the process that opened a run; forked ones have these hooks too
        self._told: str | None = None  # what our parent told us

    def launch_key(self, key: str | None) -> str | None:
        """The ranks of a launch share their first run, their second, …, even when one of them is quicker."""
        return f"{key}-{self._opened}" if key and self._opened else key

    def next_explicit(self) -> int:
        """The number of the `with relive.run()` that begins now, in this process."""
        self._explicit += 1
        return self._explicit

    def add(self, run: OpenRun) -> None:
        self._opened += 1
        self._told = self.what_parent_told()
        self.runs.append(run)
        self._tell_children()
        if not self._set:
            self._set = True
            session.at_exit.append(self.close_all)
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if launch.is_pool_worker():  # those end without asking atexit
                from multiprocessing.util import Finalize

                Finalize(None, self.close_in_worker, exitpriority=0)

    def watch_forks(self, joined: ProcessMember | None = None) -> None:
        """Once the watch over inputs does: in a child it must be renewed first, and then told where to report to."""
        self._joined = joined or self._joined
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(after_in_child=self.after_fork)

    def remove(self, run: OpenRun) -> None:
        self.runs.remove(run)
        self._tell_children()

    def what_parent_told(self) -> str | None:
        return self._told if self.runs else os.environ.get(PARENT_VARIABLE)

    def _tell_children(self) -> None:
        told = self.runs[-1].belongs() if self.runs else self._told
        if told is None:
            os.environ.pop(PARENT_VARIABLE, None)
        else:
            os.environ[PARENT_VARIABLE] = told

    def close_in_worker(self) -> None:
        error = sys.exc_info()[1] or exit_of_worker()  # what the worker did not catch is being handled now, or was
        for run in reversed(self.runs.copy()):
            run.close(error)

    def close_all(self) -> None:
        if self._pid != os.getpid():
            return
        with interrupt_kept():
            for run in reversed(self.runs.copy()):
                run.close_at_exit()
        unknown = sorted(set(session.kwargs) - session.asked)
        if unknown and not launch.is_pool_worker():
            from relive.record.args import unknown_message

            say(f"error: {unknown_message(unknown, sorted(session.asked))}")
        session.end(Ended())

    def after_fork(self) -> None:
        for run in self.runs:
            with _training_goes_on("end-incomplete"):
                run.become_child()
        if self._joined is not None:
            self._joined.become_child()


_HOOKS = _Hooks()


@contextlib.contextmanager
def _training_goes_on(slug: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the user's exit code and output must stay what they were
        if is_users(error):
            raise
        warn_once(slug, f"{type(error).__name__}: {error}; this part of the record may be missing")


def _header(run: str, around: LaunchContext, told: dict[str, Any]) -> dict[str, Any]:
    entry, launched = around.entry, around.launched
    return {
        "run": run, **told, "project": around.project,
        "rank": launched.rank, "world_size": launched.world_size, "local_rank": launched.local_rank,
        "pid": os.getpid(), "start": process_start(os.getpid()), "host": platform.node(),
        "wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "since_start_s": age_s(os.getpid()),
        "entry": entry._asdict() | {"instrumented": session.instrumented},
        "parent": _parent_run(), "argv": runtime_environment.redact_argv(sys.argv),
        "environment": runtime_environment.quick(
            os.environ, sys.orig_argv or sys.argv, extra=around.settings.variables
        ),
    }  # fmt: skip


def _sweep_tags(environ: Mapping[str, str]) -> dict[str, Any]:
    """Which sweep started us, and as which of its trials: RELIVE_SWEEP and RELIVE_TRIAL."""
    told = {"sweep": environ.get("RELIVE_SWEEP"), "trial": environ.get("RELIVE_TRIAL")}
    given = {name: text for name, text in told.items() if text}
    return {name: int(text) if name == "trial" and text.isdecimal() else text for name, text in given.items()}


def _storable(form: Any) -> Any:
    """The same, with question marks for what is no text: arguments and paths may be any bytes."""
    if isinstance(form, str):
        return form.encode("utf-8", "replace").decode()
    if isinstance(form, list | tuple):
        return [_storable(item) for item in form]
    return {key: _storable(item) for key, item in form.items()} if isinstance(form, dict) else form


def _parent_run() -> str | None:
    """The run around the caller, else that of the process, else that of the process which started it."""
    place = here.get()
    driver = place.driver if place is not None else session.first
    if isinstance(driver, Recorder):
        return driver.run
    told = read_told(_HOOKS.what_parent_told())
    try:
        return str(told["run"])
    except (KeyError, TypeError):
        return None
