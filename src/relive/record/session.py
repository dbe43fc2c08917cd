"""The one address of global state: which driver this process has, and where in its loops each context is."""

from __future__ import annotations

import atexit
import contextvars
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Driver(Protocol):
    """What a user's call means. Recording, replaying and doing nothing are objects with these calls."""

    root: Place

    def log(self, name: str, value: Any, place: Place) -> Any: ...
    def arg(self, name: str, default: Any) -> Any: ...
    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]: ...
    def data(self, name: str, source: Any, *, etag: str | None) -> Any: ...
    def artifact(self, source: Any, *, name: str | None) -> Any: ...
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


class Session:
    """The driver of this process: that of the innermost `with relive.run()`, else the one the first verb opened."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.kwargs: dict[str, str] = {}  # what stood behind --kwargs
        self.asked: set[str] = set()  # the names that some `relive.arg` asked for
        self.at_exit: list[Callable[[], None]] = []
        self.first: Driver | None = None  # what the first verb opened
        self._explicit: list[Driver] = []
        self.renew()

    def renew(self) -> None:
        """Also in a forked child: the thread that held the lock is not there to let it go."""
        self.opening = threading.RLock()
        self._is_opening = False

    def place(self, open_driver: Callable[[bool], Driver]) -> Place:
        """Where the caller is; opens a run if there is none."""
        place = here.get()
        if place is not None:
            return place
        driver = self.driver
        return (driver if driver is not None else self._open(open_driver)).root

    def _open(self, open_driver: Callable[[bool], Driver]) -> Driver:
        with self.opening:  # threads that come at once share one run
            if self.driver is not None:
                return self.driver
            if self._is_opening:  # by this very thread: a signal handler logs while the run is being opened
                return open_driver(False)
            self._is_opening = True
            try:
                self.first = self.driver = open_driver(True)
            finally:
                self._is_opening = False
            return self.driver

    def enter(self, driver: Driver) -> None:
        with self.opening:
            self._explicit.append(driver)
            self.driver = driver

    def leave(self, driver: Driver) -> None:
        """Runs of several threads end in any order: what is left is the innermost that is still open."""
        with self.opening:
            self._explicit.remove(driver)
            self.driver = self._explicit[-1] if self._explicit else self.first

    def end(self, driver: Driver) -> None:
        """From now on nothing opens a run: Python is ending."""
        self.first = self.driver = driver


session = Session()


def _end() -> None:
    for finish in session.at_exit:
        finish()


# At import, so that it runs after what the script registers: values logged there still belong to the run.
atexit.register(_end)
os.register_at_fork(after_in_child=session.renew)
