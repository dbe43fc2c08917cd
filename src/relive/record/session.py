"""The one address of global state: which driver this process has, and where in its loops each context is."""

from __future__ import annotations

import contextvars
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
    def checkpointing(self, objects: dict[str, Any]) -> AbstractContextManager[None]: ...


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
    """The driver of this process, opened by the first verb."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.kwargs: dict[str, str] = {}  # what stood behind --kwargs

    def place(self, open_driver: Callable[[], Driver]) -> Place:
        """Where the caller is; opens a run if there is none."""
        place = here.get()
        if place is not None:
            return place
        if self.driver is None:
            self.driver = open_driver()
        return self.driver.root


session = Session()
