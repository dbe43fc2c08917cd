"""Calls done later than they were made: in order, at the time they were made, and what becomes of those that fail."""

from __future__ import annotations

import inspect
import reprlib
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relive.errors import ReliveError
from relive.record.background.copies import form_of
from relive.record.warnings import say

METHOD = object()  # stands for an attribute that is to be called
TOLD = 5  # failures that are told in full; of the others only the number


@dataclass(frozen=True, slots=True)
class Call:
    """A call to be done; its arguments are copies."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    at: float  # when it was made


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed."""

    call: str
    error: str
    trace: str
    remedy: str = "correct the calls named here, or leave them out; all others were made"


class FailedLater(Exception):
    """The traceback of a failure, as text: the real one would keep the copies alive, and can't leave its process."""


class Failures:
    """What failed since somebody asked: the first few in full, and how many in all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = False
        self.first: list[Failure] = []
        self.count = 0

    def add(self, call: str, error: BaseException) -> None:
        """Remember what is being handled right now. The first one is told at once: a training may take days."""
        text = "".join(traceback.format_exception_only(error)).strip()
        self.extend([Failure(call, text, "".join(traceback.format_exception(error)))], 1)
        if not self._told:
            self._told = True
            say(f"{call} failed in the background: {text}; training goes on, flush() and close() will raise it")

    def extend(self, first: list[Failure], count: int) -> None:
        with self._lock:
            self.first = [*self.first, *(failure for failure in first if failure not in self.first)][:TOLD]
            self.count += count

    def take(self) -> tuple[list[Failure], int]:
        """What failed so far; from here on it is the taker's to tell."""
        with self._lock:
            taken = self.first, self.count
            self.first, self.count = [], 0
        return taken

    def raise_any(self) -> None:
        """Raise what failed so far as one error, if anything did."""
        first, count = self.take()
        if first:
            raise ReliveError(told(first, count)) from FailedLater(f"\n{first[0].trace}")


def told(first: list[Failure], count: int) -> str:
    """Failures as one message."""
    lines = "".join(f"\n  {failure.call}: {failure.error}" for failure in first)
    more = f"\n  and {count - len(first)} more" if count > len(first) else ""
    calls = "a call" if count == 1 else f"{count} calls"
    return f"{calls} failed in the background:{lines}{more}\n{first[0].remedy}"


class Doer:
    """Makes calls on a writer. One that fails is remembered, and the next is made all the same."""

    def __init__(self, writer: Any, failures: Failures) -> None:
        self.writer = writer
        self._failures = failures
        self._walltimes: dict[str, int | None] = {}

    def do(self, call: Call) -> None:
        try:
            method = getattr(self.writer, call.name)
            method(*call.args, **self._with_walltime(method, call))
        except BaseException as error:  # noqa: BLE001 - the user's training must go on, and so must the next call
            self._failures.add(described(call.name, call.args, call.kwargs), error)

    def do_if_there(self, name: str, at: float) -> None:
        """Flush or close the writer, if it knows how to."""
        if callable(getattr(self.writer, name, None)):
            self.do(Call(name, (), {}, at))

    def _with_walltime(self, method: Any, call: Call) -> Mapping[str, Any]:
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
    form = form_of(value)
    if form is None:
        return reprlib.repr(value)
    return f"{form.dtype}{list(form.shape)}"
