"""The one address of global state: which driver this process has, and where in its loops each context is."""

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
    from relive.store.versions import GitPrefetch


class Driver(Protocol):
    """What a user's call means. Recording, replaying and doing nothing are objects with these calls."""

    root: Place
    every: int | None
    kept: dict[str, dict[str, str]]

    @property
    def is_checkpointing(self) -> bool: ...
    def log(self, name: str, value: Any, place: Place, /) -> Any: ...
    def arg(self, name: str, default: Any) -> Any: ...
    def note_arg(self, name: str, value: Any, *, origin: str) -> None: ...
    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]: ...
    def data(self, name: str, source: Any, *, etag: str | None) -> Any: ...
    def artifact(self, source: Any, *, name: str | None) -> Any: ...
    def skipblock(self, name: str) -> Any: ...
    def checkpointing(
        self, objects: dict[str, Any], *, overhead: float | None, every: int | None
    ) -> AbstractContextManager[None]: ...


class Place:
    """An iteration of a loop (or the run itself) in which something is logged. Never changes once made."""

    __slots__ = ("driver", "iteration", "loop", "parent")

    def __init__(self, driver: Driver, loop: int, iteration: int, parent: Place | None) -> None:
        self.driver = driver
        self.loop = loop
        self.iteration = iteration
        self.parent = parent


# A context variable, so that threads and asyncio tasks each have their own place.
here: contextvars.ContextVar[Place | None] = contextvars.ContextVar("relive_here", default=None)


class Early:
    """The driver while there is none yet: keeps what is logged, and does nothing else."""

    is_checkpointing = True  # there is nothing to begin
    every: int | None = None

    def __init__(self) -> None:
        self.root = Place(self, 0, 0, None)
        self.kept: dict[str, dict[str, str]] = {}
        self.logged: list[tuple[str, Any]] = []

    def log(self, name: str, value: Any, place: Place) -> Any:
        self.logged.append((name, value))
        return value

    def arg(self, name: str, default: Any) -> Any:
        return default

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """Nothing is kept of it yet."""

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


class Session:
    """The driver of this process: that of the innermost `with relive.run()`, else the one the first verb opened."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.kwargs: dict[str, str] = {}  # what stood behind --kwargs
        self.asked: set[str] = set()  # the names that some `relive.arg` asked for
        self.instrumented: dict[str, Any] | None = None  # by which rules the script was rewritten, if it was
        self.at_exit: list[Callable[[], None]] = []
        self.asked_git: GitPrefetch | None = None  # while the first run is opened
        self.first: Driver | None = None  # what the first verb opened
        self.waiting: list[Callable[[Driver], None]] = []  # what happened before, and is to be told to that driver
        self.stand_in: Callable[[], Any] | None = None  # who answers `with relive.run()` in a replay
        self._explicit: list[Driver] = []
        self.renew()

    def renew(self) -> None:
        """Also in a forked child: the thread that held the lock is not there to let it go."""
        self._lock = threading.RLock()
        self._early: Driver | None = None  # what answers a signal handler that logs while a run is being opened

    def place(self, open_driver: Callable[[], Driver]) -> Place:
        """Where the caller is; opens a run if there is none."""
        place = here.get()
        if place is not None:
            return place
        driver = self.driver
        return (driver if driver is not None else self._open(open_driver)).root

    def _open(self, open_driver: Callable[[], Driver]) -> Driver:
        with self._lock:  # threads that come at once share one run
            return self.driver or self._early or self.open(open_driver, explicitly=False)

    def open(self, open_driver: Callable[[], Driver], *, explicitly: bool) -> Driver:
        """One at a time. What signal handlers log meanwhile comes to the run that is being opened."""
        with self._lock:
            before, early = self._early, Early()
            self._early = early
            try:
                self.driver = driver = open_driver()
                if explicitly:
                    self._explicit.append(driver)
                else:
                    self.first = driver
            finally:
                self._early = before
        for name, value in early.logged:
            driver.log(name, value, driver.root)
        if not explicitly:
            waiting, self.waiting = self.waiting, []
            for tell in waiting:
                tell(driver)
        return driver

    def leave(self, driver: Driver) -> None:
        """Runs of several threads end in any order: what is left is the innermost that is still open."""
        with self._lock:
            self._explicit.remove(driver)
            self.driver = self._explicit[-1] if self._explicit else self.first

    def end(self, driver: Driver) -> None:
        """From now on nothing opens a run: Python is ending."""
        self.first = self.driver = driver


session = Session()


def _end() -> None:
    for finish in session.at_exit:
        finish()
    if session.at_exit and getattr(sys, "last_type", None) is KeyboardInterrupt:
        _die_of_interrupt()


def _die_of_interrupt() -> None:
    """Let Python end as it does after Ctrl-C: by the signal, which shells and launchers look at.

    It forgets that it has to as soon as a text is run as code, which the loading of a module with a dataclass or a
    named tuple does; and it remembers when such a text raises the same.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


# At import, so that it runs after what the script registers: values logged there still belong to the run.
atexit.register(_end)
os.register_at_fork(after_in_child=session.renew)
