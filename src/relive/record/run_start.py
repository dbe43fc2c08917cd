"""Opens and closes runs: journal, version, provenance and threads; hooks for exit, forks and child processes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.errors import VersionError
from relive.model import FINISHED
from relive.record.child_processes import ProcessMember, join_parent_run, parse_parent_variable
from relive.record.console import ConsoleRecorder
from relive.record.off import EndedDriver, EndedJournal, Off
from relive.record.outcome import Ending, ExitWatch, find_worker_exit, outcome_if_pruned, outcome_of, preserve_interrupt
from relive.record.process import (
    JournalSyncer,
    LaunchContext,
    is_pool_worker,
    join_shared_run,
    print_to_stderr,
    raised_by_signal_handler,
    read_launch_context,
    warn_once,
)
from relive.record.provenance import CodeLines, InputWatch, Provenance, RunBeginning, run_header
from relive.record.recorder import Recorder
from relive.record.session import Driver, current_place, session
from relive.store.journal import Journal, encode_value, line_schema, to_json

if TYPE_CHECKING:
    from relive.record.process import Shipper

_OF_THE_SCRIPT = RunBeginning()
PARENT_VARIABLE = "RELIVE_PARENT"  # passes home, run and rank to child processes


def open_driver() -> Driver:
    """Opens the driver of a process at its first call. Never fails: at worst it warns and nothing is recorded."""
    try:
        context = read_launch_context()
        if context.settings.off:
            return Off()
        joined = join_parent_run(os.environ.get(PARENT_VARIABLE), context) if is_pool_worker() else None
        if joined is None:
            return OpenRun(context).recorder
        _HOOKS.watch_forks(joined)
        return joined.driver
    except Exception as error:  # the user's training must go on
        if raised_by_signal_handler(error):
            raise
        warn_once("recording-off", f"{type(error).__name__}: {error}; this run is not recorded")
        return Off()


def open_explicit_run(name: str, tags: dict[str, Any], beginning: RunBeginning | None = None) -> OpenRun | None:
    """Opens a run for `with relive.run(...)`, or for a call; None when relive is off or can't record here."""
    try:
        context = read_launch_context()
        if context.settings.off:
            return None
        return OpenRun(context, name=name, tags=tags, beginning=beginning or RunBeginning(next_explicit_number()))
    except Exception as error:  # the user's training must go on
        if raised_by_signal_handler(error):
            raise
        warn_once("recording-off", f"{type(error).__name__}: {error}; this run is not recorded")
        return None


def next_explicit_number() -> int:
    """Counts the runs that this process opens explicitly, or has opened by its workers, so that a replay finds each."""
    return _HOOKS.next_explicit()


class OpenRun:
    """A run that this process has opened and is recording."""

    def __init__(
        self,
        context: LaunchContext,
        *,
        name: str = "",
        tags: dict[str, Any] | None = None,
        beginning: RunBeginning = _OF_THE_SCRIPT,
    ) -> None:
        self._pid = os.getpid()
        self._context = context
        home = context.home
        home.create()
        rank = context.launched.rank
        if context.launched.world_size > 1 and context.launched.key is None:
            warn_once(
                "launch-unknown",
                "each rank is recorded as a run of its own; set RELIVE_LAUNCH to the same text on all ranks",
            )
        key = _HOOKS.launch_key(context.launched.key)
        self.run = join_shared_run(home, key, rank) if key else home.new_run()
        self.folder = home.run_folder(self.run)
        self.recorder = Recorder.begin(self.run, self.folder, context, is_shared=bool(key))
        # `nth` counts the `with relive.run()` of the process, so that a replay can find the same one.
        secrets = self.recorder.secrets
        all_tags = {**run_header.sweep_tags(os.environ), **(tags or {})}
        encoded = encode_value(all_tags, self.recorder.chunks.put, secrets.settings)
        given = {"name": secrets.message(name), "tags": encoded, "nth": beginning.nth}
        self._code = CodeLines(self.recorder.journal, context.entry.root, secrets)
        header = run_header.describe_start(
            self.run, context, given, secrets, parent=_parent_run(), instrumented=session.instrumented
        )
        with _warn_on_failure("provenance-incomplete"):
            header["environment"]["variables"].update(self._code.variables_of(context.entry.script))
        self.recorder.journal.line(line_schema.RunStarted, **run_header.as_valid_text(header))
        self._end_cells = self._watch_cells(is_explicit=beginning.nth > 0)
        self._record_random_states(beginning.random_states)
        self._watch = InputWatch(root=context.entry.root, home=str(home.path)) if context.settings.inputs else None
        self._exit = ExitWatch()
        self._console = self._start_console(rank)
        self._syncer: JournalSyncer | None = None
        self._shipper: Shipper | None = None
        _HOOKS.add(self)
        self._start_services(rank)
        _HOOKS.watch_forks()

    def _watch_cells(self, *, is_explicit: bool) -> Callable[[], None]:
        if self._context.entry.kind != "notebook":
            return lambda: None
        from relive.record.process import watch_notebook_cells

        return watch_notebook_cells(self.recorder, is_explicit=is_explicit)

    def _start_console(self, rank: int) -> ConsoleRecorder | None:
        settings = self._context.settings
        if not settings.console or settings.console_bytes <= 0:
            return None
        console = ConsoleRecorder(self.folder, rank, max_bytes=settings.console_bytes, secrets=self.recorder.secrets)
        console.start(os.environ)
        return console

    def _record_random_states(self, states: str) -> None:
        from relive.checkpoint.state import encoded_random_states

        with _warn_on_failure("provenance-incomplete"):
            self.recorder.journal.line(line_schema.RandomStates, states=states or encoded_random_states())

    def _start_services(self, rank: int) -> None:
        """Records the code version and starts the threads. Values are recorded now, so no failure may end the run."""
        settings, journal = self._context.settings, self.recorder.journal
        with _warn_on_failure("provenance-incomplete"):
            if rank == 0 and settings.versions:
                self._record_version()
        with _warn_on_failure("sync-failed"):
            self._syncer = JournalSyncer(journal, settings.sync_seconds, self._before_sync)
            self._syncer.start()
        with _warn_on_failure("sending-stopped"):
            self._start_shipping(rank)
        with _warn_on_failure("provenance-incomplete"):
            self._start_provenance(journal)
        with _warn_on_failure("end-incomplete"):
            self._exit.install()

    def _start_shipping(self, rank: int) -> None:
        settings = self._context.settings
        if settings.server:
            from relive.record.process import Shipper  # imports an HTTP client

            self._shipper = Shipper(
                self._context.home, self.run, rank, url=settings.server, token=settings.token,
                every_s=settings.ship_seconds,
            )  # fmt: skip
            self._shipper.start()

    def parent_variable(self) -> str:
        """Returns the value of the environment variable that tells child processes about this run."""
        home, rank = str(self._context.home.path), self._context.launched.rank
        facts = {"home": home, "run": self.run, "rank": rank, "kwargs": session.kwargs}
        try:
            return to_json(facts)
        except UnicodeEncodeError:  # a path or argument holds lone surrogates, which only json can encode
            import json

            return json.dumps(facts)

    def _start_provenance(self, journal: Journal) -> None:
        cache = self._context.home.path / "fingerprints.sqlite"
        full_bytes = self._context.settings.fingerprint_bytes
        secrets = self.recorder.secrets
        provenance = Provenance(journal, cache, full_bytes=full_bytes, watch=self._watch, secrets=secrets)
        provenance.start()
        self.recorder.provenance = provenance

    def _before_sync(self) -> None:
        self.recorder.resume()
        self._record_imports()
        if self._console is not None:
            self._console.flush()

    def _record_imports(self, *, is_last: bool = False) -> None:
        with _warn_on_failure("provenance-incomplete"):
            self._code.record_imports(is_last=is_last)

    def _record_version(self) -> None:
        from relive.store.versions import code_versions

        settings = self._context.settings
        prefetch, session.git_prefetch = session.git_prefetch, None
        try:
            taken = code_versions.take(
                Path(self._context.entry.root), home=self._context.home.path, large_bytes=settings.large_file_bytes,
                untracked_files=settings.untracked_files, untracked_bytes=settings.untracked_bytes,
                prefetch=prefetch,
            )  # fmt: skip
        except VersionError as error:
            message = self.recorder.secrets.message(str(error))
            self.recorder.journal.line(line_schema.WarningGiven, slug="no-version", message=message)
            warn_once("no-version", f"{error}; the run is recorded without its code version")
            return
        self.recorder.journal.line(
            line_schema.VersionCaptured, **taken._asdict() | {"large": [file._asdict() for file in taken.large]}
        )

    def close(self, error: BaseException | None = None) -> None:
        """Ends the run when `with relive.run()` is left: with an error, or normally."""
        self._close(lambda: outcome_of(error) if error is not None else (FINISHED, None))

    def close_at_exit(self) -> None:
        self._close(self._exit.outcome)

    def _close(self, find_ending: Callable[[], Ending]) -> None:
        if os.getpid() != self._pid or self not in _HOOKS.runs:
            return
        _HOOKS.remove(self)
        with _warn_on_failure("end-incomplete"):
            ending = find_ending()
            if self.recorder.is_pruned:
                ending = outcome_if_pruned(ending)
            self._exit.remove()
            self._finish(*ending)

    def _finish(self, outcome: str, error: dict[str, Any] | None) -> None:
        self._end_cells()
        self.recorder.resume()
        journal, provenance = self.recorder.stopped or self.recorder.journal, self.recorder.provenance
        if self.recorder.too_deep[0]:
            warn_once(
                "log-lost",
                "a value logged near the recursion limit was lost; raise the limit with sys.setrecursionlimit",
            )
        with _warn_on_failure("console-lost"):
            if self._console is not None:
                self._console.close()
        try:
            self.recorder.finish_blocks()
            with _warn_on_failure("provenance-incomplete"):
                if provenance is not None:
                    provenance.finish(self.folder)
            self._record_imports(is_last=True)
            self.recorder.resume()
            end = {"outcome": outcome, "error": self._without_secrets(error), "wall_ns": time.time_ns()}
            if self.recorder.stopped is None:
                journal.line(line_schema.RunEnded, **end)
        finally:
            if self._syncer is not None:
                self._syncer.stop()
        was_deleted = journal.is_deleted()
        journal.close()
        self.recorder.end_stopped(end)
        if was_deleted:
            print_to_stderr(f"this run is lost: {self.folder} was removed while it was recorded")
        if self._shipper is not None:
            self._shipper.stop(self._context.settings.ship_wait_seconds)
        self.recorder.journal, self.recorder.provenance = EndedJournal(), None  # type: ignore[assignment]

    def _without_secrets(self, error: dict[str, Any] | None) -> dict[str, Any] | None:
        secrets = self.recorder.secrets
        cleaned: dict[str, Any] | None = secrets.fields(error)
        if cleaned is not None and "traceback" in cleaned:
            cleaned["traceback"] = secrets.printed(cleaned["traceback"])
        return cleaned

    def become_child(self) -> None:
        self.recorder.forget_checkpoints()
        if self._console is not None:
            self._console.forget()
        child = ProcessMember(self.recorder, self.folder, self._context.launched.rank).become_child()
        if self._watch is not None and child is not None:
            self._watch.on_new = child.opened_file


class _ProcessHooks:
    """The hooks of the process for exit and fork, installed when the first run opens."""

    def __init__(self) -> None:
        self.runs: list[OpenRun] = []
        self._opened = self._explicit = 0
        self._is_installed = self._watches_forks = False
        self._joined: ProcessMember | None = None  # set in a worker that records into the run of its parent
        self._pid = 0  # the process that opened the runs; forked children inherit this object
        self._inherited: str | None = None  # PARENT_VARIABLE as our parent process set it

    def launch_key(self, key: str | None) -> str | None:
        """Returns a key per opened run: the ranks of a launch share their first run, their second, and so on."""
        return f"{key}-{self._opened}" if key and self._opened else key

    def next_explicit(self) -> int:
        """Counts the `with relive.run()` blocks of this process, and returns the number of the new one."""
        self._explicit += 1
        return self._explicit

    def add(self, run: OpenRun) -> None:
        self._opened += 1
        self._inherited = self.inherited_variable()
        self.runs.append(run)
        self._set_variable()
        if not self._is_installed:
            self._is_installed = True
            session.at_exit.append(self.close_all)
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if is_pool_worker():  # workers skip atexit functions
                from multiprocessing.util import Finalize

                Finalize(None, self.close_in_worker, exitpriority=0)

    def watch_forks(self, joined: ProcessMember | None = None) -> None:
        """Installs the fork hook. Call after the InputWatch has installed its own: a child renews the watch first."""
        self._joined = joined or self._joined
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(after_in_child=self.after_fork)

    def remove(self, run: OpenRun) -> None:
        self.runs.remove(run)
        self._set_variable()

    def inherited_variable(self) -> str | None:
        return self._inherited if self.runs else os.environ.get(PARENT_VARIABLE)

    def _set_variable(self) -> None:
        """Sets PARENT_VARIABLE, which child processes inherit, to the innermost open run."""
        value = self.runs[-1].parent_variable() if self.runs else self._inherited
        if value is None:
            os.environ.pop(PARENT_VARIABLE, None)
        else:
            os.environ[PARENT_VARIABLE] = value

    def close_in_worker(self) -> None:
        # An uncaught exception of the worker is still being handled, or its exit code is all that is left.
        error = sys.exc_info()[1] or find_worker_exit()
        for run in reversed(self.runs.copy()):
            run.close(error)

    def close_all(self) -> None:
        if self._pid != os.getpid():
            return
        with preserve_interrupt():
            for run in reversed(self.runs.copy()):
                run.close_at_exit()
        unknown = sorted(set(session.kwargs) - session.requested)
        if unknown and not is_pool_worker():
            from relive.record.args import unknown_kwargs_message

            print_to_stderr(f"error: {unknown_kwargs_message(unknown, sorted(session.requested))}")
        session.end(EndedDriver())

    def after_fork(self) -> None:
        for run in self.runs:
            with _warn_on_failure("end-incomplete"):
                run.become_child()
        if self._joined is not None:
            self._joined.become_child()


_HOOKS = _ProcessHooks()


@contextlib.contextmanager
def _warn_on_failure(slug: str) -> Iterator[None]:
    """Turns a failure inside into a warning, except exceptions of signal handlers."""
    try:
        yield
    except Exception as error:  # the user's exit code and output must stay what they were
        if raised_by_signal_handler(error):
            raise
        warn_once(slug, f"{type(error).__name__}: {error}; this part of the record may be missing")


def _parent_run() -> str | None:
    """Returns the id of the current run, else of the first run of the process, else of the parent process."""
    place = current_place.get()
    driver = place.driver if place is not None else session.first
    if driver is not None and driver.run:
        return driver.run
    parent = parse_parent_variable(_HOOKS.inherited_variable())
    try:
        return str(parent["run"])
    except (KeyError, TypeError):
        return None
