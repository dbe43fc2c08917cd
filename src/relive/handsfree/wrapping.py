"""Putting code of ours around methods of a library, so that it does what it did, and we are told."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from relive.handsfree.course import Course
from relive.handsfree.telling import safely, teller

SOURCE = "frameworks"


def wrap(kind: type, name: str, around: Callable[..., Any]) -> None:
    """`around(original, self, …)` is what the method does from now on; once, however often it is asked for."""
    original = getattr(kind, name)
    if hasattr(original, "__relive_wraps__"):
        return

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        return around(original, self, *args, **options)

    wrapped.__relive_wraps__ = True  # type: ignore[attr-defined]
    setattr(kind, name, wrapped)


def after_init(kind: Any, callbacks: Callable[[Any], list[Any]], made: type) -> None:
    """Put our callback before all others, so that they are in the loops that it tells of; unless there is one."""

    def init(original: Callable[..., None], self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if SOURCE in teller.sources:
            safely(kind.__name__, put, self)

    def put(owner: Any) -> None:
        there = callbacks(owner)
        if course_of(there) is None:
            there.insert(0, made())

    wrap(kind, "__init__", init)


def course_of(callbacks: Iterable[Any]) -> Course | None:
    """The course that one of these callbacks tells of, if one of them is ours."""
    found = (getattr(callback, "relive_course", None) for callback in callbacks)
    return next((course for course in found if isinstance(course, Course)), None)
