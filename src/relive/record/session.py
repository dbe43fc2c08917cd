"""The one address of global state: the driver of this process, and the current place of each thread and task."""

from __future__ import annotations

import atexit
import contextvars
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol

from relive.record.blocks import PlainBlock

if TYPE_CHECKING:
    from pathlib import Path

    from relive.store.journal import line_schema
    from relive.store.versions import GitPrefetch


class RunNotes(Protocol):
    """The run of a driver, for other packages of relive: its id and home, and what they add to it."""

    run: str  # empty if there is none

    @property
    def home_path(self) -> Path | None: ...
    def tag(self, name: str, value: Any) -> None: ...
    def note_line(self, kind: type[line_schema.JournalLine], content: dict[str, Any], place: Place) -> None: ...
    def settle_data(self) -> None: ...


class Driver(RunNotes, Protocol):
    """Implements the user's calls. Recording, replaying and doing nothing are three classes with these methods."""

    root: Place
    every: int | None
    last_checkpoints: dict[str, dict[str, str]]

    @property
    def is_checkpointing(self) -> bool: ...
    def log(self, name: str, value: Any, place: Place, /) -> Any: ...
    def arg(self, name: str, default: Any) -> Any: ...
    def note_arg(self, name: str, value: Any, *, origin: str) -> None: ...
    def note_generators(self, library: str) -> None: ...
    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]: ...
    def data(self, name: str, source: Any, *, etag: str | None) -> Any: ...
    def artifact(self, source: Any, *, name: str | None) -> Any: ...
    def skipblock(self, name: str) -> Any: ...
    def checkpointing(
        self, objects: dict[str, Any], *, overhead: float | None, every: int | None
    ) -> AbstractContextManager[None]: ...


class Place:
    """The iteration of a loop (or the run itself) in which values are logged. Immutable by convention."""

    __slots__ = ("driver", "iteration", "loop", "parent")

    def __init__(self, driver: Driver, loop: int, iteration: int, parent: Place | None) -> None:
        self.driver = driver
        self.loop = loop
        self.iteration = iteration
        self.parent = parent


# A context variable, so that threads and asyncio tasks each have their own place.
current_place: contextvars.ContextVar[Place | None] = contextvars.ContextVar("relive_here", default=None)


class SilentDriver:
    """A driver that records nothing: every call returns what it was given."""

    is_checkpointing = True  # so that no caller tries to start checkpointing
    run = ""
    home_path: Path | None = None
    every: int | None = None

    def __init__(self) -> None:
        self.root = Place(self, 0, 0, None)
        self.last_checkpoints: dict[str, dict[str, str]] = {}

    def log(self, name: str, value: Any, place: Place) -> Any:
        return value

    def arg(self, name: str, default: Any) -> Any:
        return default

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """Does nothing."""

    def note_generators(self, library: str) -> None:
        """Does nothing."""

    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        return items

    def data(self, name: str, source: Any, *, etag: str | None) -> Any:
        return source

    def artifact(self, source: Any, *, name: str | None) -> Any:
        return source

    def skipblock(self, name: str) -> PlainBlock:
        return PlainBlock()

    def checkpointing(
        self, objects: dict[str, Any], *, overhead: float | None, every: int | None
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def tag(self, name: str, value: Any) -> None:
        """Does nothing."""

    def note_line(self, kind: type[line_schema.JournalLine], content: dict[str, Any], place: Place) -> None:
        """Does nothing."""

    def settle_data(self) -> None:
        """Does nothing."""


class OpeningDriver(SilentDriver):
    """The driver while a run is being opened: buffers logged values, and does nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[tuple[str, Any]] = []

    def log(self, name: str, value: Any, place: Place) -> Any:
        self.logged.append((name, value))
        return value


class Session:
    """The driver of this process: that of the innermost `with relive.run()`, else the one the first call opened."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.kwargs: dict[str, str] = {}  # name → text, from --kwargs on the command line
        self.requested: set[str] = set()  # the names passed to `relive.arg` so far
        self.instrumented: dict[str, Any] | None = None  # how the script was rewritten; None if it was not
        self.at_exit: list[Callable[[], None]] = []
        self.flushes: list[Callable[[Place | None], None]] = []  # log what is held back at places left for another one
        self.git_prefetch: GitPrefetch | None = None  # set while the first run is being opened
        self.first: Driver | None = None  # the driver that the first call opened
        self.pending: list[Callable[[Driver], None]] = []  # called with the first driver, once it is open
        self.open_replayed_run: Callable[[], Any] | None = None  # opens `with relive.run()` in a replay
        self._explicit: list[Driver] = []
        self.renew()

    def renew(self) -> None:
        """Creates a new lock; also called in a forked child, where the thread that held the old one does not exist."""
        self._lock = threading.RLock()
        self._opening: Driver | None = None  # serves signal handlers that log while a run is being opened

    def place(self, open_driver: Callable[[], Driver]) -> Place:
        """Returns the current place of the caller; opens a run if there is none."""
        place = current_place.get()
        if place is not None:
            return place
        driver = self.driver
        return (driver if driver is not None else self._open(open_driver)).root

    def _open(self, open_driver: Callable[[], Driver]) -> Driver:
        with self._lock:  # threads that make their first call at the same time share one run
            return self.driver or self._opening or self.open(open_driver, explicitly=False)

    def open(self, open_driver: Callable[[], Driver], *, explicitly: bool) -> Driver:
        """Opens a driver and makes it current, one at a time.

        Values that signal handlers log meanwhile are buffered and then logged to the opened run.
        """
        with self._lock:
            before, opening = self._opening, OpeningDriver()
            self._opening = opening
            try:
                self.driver = driver = open_driver()
                if explicitly:
                    self._explicit.append(driver)
                else:
                    self.first = driver
            finally:
                self._opening = before
        for name, value in opening.logged:
            driver.log(name, value, driver.root)
        if not explicitly:
            pending, self.pending = self.pending, []
            for callback in pending:
                callback(driver)
        return driver

    def leave(self, driver: Driver) -> None:
        """Makes the innermost run that is still open current. Runs of several threads may end in any order."""
        with self._lock:
            self._explicit.remove(driver)
            self.driver = self._explicit[-1] if self._explicit else self.first

    def end(self, driver: Driver) -> None:
        """Installs the driver for the time when Python is exiting, so that no further run is opened."""
        self.first = self.driver = driver


session = Session()


def _run_at_exit() -> None:
    for finish in session.at_exit:
        finish()
    if session.at_exit and getattr(sys, "last_type", None) is KeyboardInterrupt:
        _restore_interrupt()


def _restore_interrupt() -> None:
    """Makes Python exit by SIGINT, as it does after Ctrl-C; shells and launchers check for that.

    CPython clears its "unhandled interrupt" flag whenever source text is executed, which importing a module with a
    dataclass or a named tuple does. Executing text that raises KeyboardInterrupt sets the flag again.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


# Registered at import, so that it runs after the exit functions of the script: values they log belong to the run.
atexit.register(_run_at_exit)
os.register_at_fork(after_in_child=session.renew)
