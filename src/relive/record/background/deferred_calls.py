"""Calls made later than they were asked for: in order, at the time they were asked for, and what failed of them."""

from __future__ import annotations

import inspect
import reprlib
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relive.errors import ReliveError
from relive.record.process import say

METHOD = object()  # stands for an attribute that is to be called
TOLD = 5  # failures that are told one by one; of the others only the number


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A call to be made; its arguments are copies."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    at: float  # when it was asked for


class FailedLater(Exception):
    """The traceback of a failure, as text: the real one would keep the copies alive, and can't leave its process."""


class Failures:
    """What failed since somebody asked: the first few, and how many in all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_said = False
        self._first: list[tuple[str, str]] = []  # what, and the traceback
        self._count = 0

    def add(self, call: str, error: BaseException) -> None:
        """The first one is said at once, because the end of a training may be days away."""
        what = f"{call}: {''.join(traceback.format_exception_only(error)).strip()}"
        self.extend([(what, "".join(traceback.format_exception(error)))], 1)
        if not self._is_said:
            self._is_said = True
            say(f"in the background, {what}; training goes on, flush() and close() will raise it")

    def extend(self, first: list[tuple[str, str]], count: int) -> None:
        with self._lock:
            self._first = [*self._first, *first][:TOLD]
            self._count += count

    def take(self) -> tuple[list[tuple[str, str]], int]:
        """What failed so far; from here on it is the taker's to tell."""
        with self._lock:
            taken = self._first, self._count
            self._first, self._count = [], 0
        return taken

    def raise_any(self) -> None:
        """Raise what failed so far as one error."""
        first, count = self.take()
        if count:
            lines = "".join(f"\n  {what}" for what, _ in first)
            more = f"\n  and {count - len(first)} more" if count > len(first) else ""
            calls = "a call" if count == 1 else f"{count} calls"
            told = f"{calls} failed in the background:{lines}{more}\ncorrect or leave out these; all others were made"
            raise ReliveError(told) from FailedLater(f"\n{first[0][1]}")


class Doer:
    """Makes calls on a writer. One that fails is remembered, and the next is made all the same."""

    def __init__(self, writer: Any, failures: Failures) -> None:
        self.writer = writer
        self._failures = failures
        self._walltimes: dict[str, int | None] = {}

    def do(self, call: DeferredCall) -> None:
        try:
            method = getattr(self.writer, call.name)
            method(*call.args, **self._with_walltime(method, call))
        except BaseException as error:  # noqa: BLE001 - the user's training must go on, and so must the next call
            self._failures.add(described(call.name, call.args, call.kwargs), error)

    def do_if_there(self, name: str) -> None:
        """Flush or close the writer, if it knows how to."""
        if callable(getattr(self.writer, name, None)):
            self.do(DeferredCall(name, (), {}, 0.0))

    def _with_walltime(self, method: Any, call: DeferredCall) -> Mapping[str, Any]:
        """TensorBoard and its like take the time themselves unless they are told; it should be that of the call."""
        if call.name not in self._walltimes:
            self._walltimes[call.name] = _position_of_walltime(method)
        position = self._walltimes[call.name]
        if position is None or len(call.args) > position or call.kwargs.get("walltime") is not None:
            return call.kwargs
        return {**call.kwargs, "walltime": call.at}


def _position_of_walltime(method: Any) -> int | None:
    try:
        parameters = list(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return None
    return parameters.index("walltime") if "walltime" in parameters else None


def described(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A call as one would write it, with arrays by their type and shape."""
    given = [_described(value) for value in args]
    given += [f"{key}={_described(value)}" for key, value in kwargs.items() if key != "walltime"]
    return f"{name}({', '.join(given)})"


def _described(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    return reprlib.repr(value)
