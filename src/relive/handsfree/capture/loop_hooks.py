"""The functions that instrumented code calls: loops, iterations of `while`, f-strings and `print`."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from relive.checkpoint.state import find_user_frame
from relive.handsfree.capture.checkpoint_scopes import scopes
from relive.handsfree.capture.explain_report import explainer
from relive.handsfree.capture.log_capture import LoggedText, script_logs
from relive.handsfree.configs import record_configs
from relive.handsfree.sweeps import open_run_of_call
from relive.record import Driver, open_driver, session

_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}


def loop(name: str, items: Iterable[Any]) -> Iterable[Any]:
    """Wraps a loop that is recorded, but is never the main loop."""
    return current_driver().loop(name, items)


def main(name: str, items: Iterable[Any]) -> Iterable[Any]:
    """Wraps a training loop; the outermost one takes checkpoints."""
    driver = current_driver()
    if driver.is_checkpointing or not scopes.is_worth_it(name):
        return driver.loop(name, items)
    return checkpointed_loop(driver, name, items, {})


def checkpointed_loop(driver: Driver, name: str, items: Iterable[Any], objects: dict[str, Any]) -> Iterator[Any]:
    """Runs a main loop with checkpoints; `objects` are named, all other state is found in frames near the loop."""
    user = find_user_frame(sys._getframe(1))
    line = user.f_lineno if user is not None else 0
    record_configs(driver, user)
    try:
        with scopes.measured(name), driver.checkpointing(objects, overhead=None, every=driver.every):
            yield from driver.loop(name, items)
    finally:
        explainer.end_loop(name, user, line, driver.last_checkpoints)


def current_driver() -> Driver:
    """Returns the driver of the current place; opens a run if there is none, or for the call of a sweep."""
    open_run_of_call()
    return session.place(open_driver).driver


class Iterations:
    """The iterations of a `while` loop. The script evaluates the test and passes it to `go`; `leave` ends the loop."""

    def __init__(self, name: str, *, is_main: bool) -> None:
        self._name = name
        self._is_main = is_main
        self._iterations: Iterator[Any] | None = None
        self._goes_on = False
        self._number = -1

    def go(self, test: object) -> bool:
        self._goes_on = bool(test)
        if self._iterations is None:
            self._iterations = iter((main if self._is_main else loop)(self._name, _IterationNumbers(self)))
        return next(self._iterations, None) is not None

    def leave(self) -> None:
        close = getattr(self._iterations, "close", None)
        if close is not None:
            close()

    def next_number(self) -> int:
        if not self._goes_on:
            raise StopIteration
        self._number += 1
        return self._number


class _IterationNumbers:
    """Yields 0, 1, 2, … as long as the test holds. A replay may skip some without evaluating the test."""

    def __init__(self, iterations: Iterations) -> None:
        self._iterations = iterations

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return self._iterations.next_number()


def iterations(name: str) -> Iterations:
    return Iterations(name, is_main=False)


def main_iterations(name: str) -> Iterations:
    return Iterations(name, is_main=True)


def text(*parts: str | tuple[Any, int, str]) -> str:
    """Formats an f-string, given as parts: texts, and values with their conversion and format."""
    texts: list[str] = []
    values: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            values.append(part)
        else:
            value, conversion, format_spec = part
            if conversion in _CONVERSIONS:
                value = _CONVERSIONS[conversion](value)
            texts.append(format(value, format_spec))
            values.append(value)
    return LoggedText.of("".join(texts), values)


def print(*values: Any, **options: Any) -> None:
    """Prints as the built-in does, and captures the named numbers."""
    builtins.print(*values, **options)
    if options.get("file") in (None, sys.stdout, sys.stderr):
        script_logs.capture_text("print", values)
