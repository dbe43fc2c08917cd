"""Deferred calls: executes them in order with their original wall time, and collects their failures."""

from __future__ import annotations

import inspect
import reprlib
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relive.errors import ReliveError
from relive.record.process import print_to_stderr

METHOD = object()  # sentinel for an attribute that is callable
MAX_LISTED = 5  # how many failures an error lists; the rest is only counted


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A call to execute later; its arguments are copies."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    at: float  # wall time of the original call


class BackgroundTraceback(Exception):
    """The traceback of a failure as text: a real one would keep the arguments alive and can't be pickled."""


class CallFailures:
    """Failures since the last `take`: the first few in full, and the total count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_reported = False
        self._first: list[tuple[str, str]] = []  # call with error, and traceback
        self._count = 0

    def add(self, call: str, error: BaseException) -> None:
        """Adds a failure; prints the first one at once, because the training may go on for days."""
        summary = f"{call}: {''.join(traceback.format_exception_only(error)).strip()}"
        self.extend([(summary, "".join(traceback.format_exception(error)))], 1)
        if not self._is_reported:
            self._is_reported = True
            print_to_stderr(f"in the background, {summary}; training goes on, flush() and close() will raise it")

    def extend(self, first: list[tuple[str, str]], count: int) -> None:
        with self._lock:
            self._first = [*self._first, *first][:MAX_LISTED]
            self._count += count

    def take(self) -> tuple[list[tuple[str, str]], int]:
        """Returns the failures so far and forgets them; the caller has to report them."""
        with self._lock:
            taken = self._first, self._count
            self._first, self._count = [], 0
        return taken

    def raise_any(self) -> None:
        """Raises the failures so far as one error."""
        first, count = self.take()
        if count:
            lines = "".join(f"\n  {summary}" for summary, _ in first)
            more = f"\n  and {count - len(first)} more" if count > len(first) else ""
            calls = "a call" if count == 1 else f"{count} calls"
            message = f"{calls} failed in the background:{lines}{more}\nfix or remove these calls; all others were made"
            raise ReliveError(message) from BackgroundTraceback(f"\n{first[0][1]}")


class CallExecutor:
    """Executes calls on a writer. A failed call is recorded, and the next one is executed anyway."""

    def __init__(self, writer: Any, failures: CallFailures) -> None:
        self.writer = writer
        self._failures = failures
        self._walltimes: dict[str, int | None] = {}

    def execute(self, call: DeferredCall) -> None:
        try:
            method = getattr(self.writer, call.name)
            method(*call.args, **self._with_walltime(method, call))
        except BaseException as error:  # noqa: BLE001 - the user's training must go on, and so must the next call
            self._failures.add(describe_call(call.name, call.args, call.kwargs), error)

    def execute_if_defined(self, name: str) -> None:
        """Calls `flush` or `close` of the writer, if it has that method."""
        if callable(getattr(self.writer, name, None)):
            self.execute(DeferredCall(name, (), {}, 0.0))

    def _with_walltime(self, method: Any, call: DeferredCall) -> Mapping[str, Any]:
        """Adds the wall time of the original call for methods with a `walltime` parameter, such as TensorBoard's."""
        if call.name not in self._walltimes:
            self._walltimes[call.name] = _walltime_position(method)
        position = self._walltimes[call.name]
        if position is None or len(call.args) > position or call.kwargs.get("walltime") is not None:
            return call.kwargs
        return {**call.kwargs, "walltime": call.at}


def _walltime_position(method: Any) -> int | None:
    try:
        parameters = list(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return None
    return parameters.index("walltime") if "walltime" in parameters else None


def describe_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Formats a call as source code, with arrays as dtype and shape."""
    arguments = [_describe_value(value) for value in args]
    arguments += [f"{key}={_describe_value(value)}" for key, value in kwargs.items() if key != "walltime"]
    return f"{name}({', '.join(arguments)})"


def _describe_value(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    return reprlib.repr(value)
