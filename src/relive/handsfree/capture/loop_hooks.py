"""What rewritten code calls: its loops, the iterations of its `while`, and what it prints."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from relive.checkpoint.state import users_frame
from relive.handsfree.capture.checkpoint_scopes import scopes
from relive.handsfree.capture.config_capture import record_configs
from relive.handsfree.capture.explain_report import explainer
from relive.handsfree.capture.log_capture import LoggedText, script_logs
from relive.record import Driver, open_driver, session

_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}


def loop(name: str, items: Iterable[Any]) -> Iterable[Any]:
    """A loop that matters, but is never the main loop."""
    return current_driver().loop(name, items)


def main(name: str, items: Iterable[Any]) -> Iterable[Any]:
    """A loop that trains: the outermost of these keeps checkpoints."""
    driver = current_driver()
    if driver.is_checkpointing or not scopes.is_worth_it(name):
        return driver.loop(name, items)
    return checkpointed_loop(driver, name, items, {})


def checkpointed_loop(driver: Driver, name: str, items: Iterable[Any], objects: dict[str, Any]) -> Iterator[Any]:
    """A main loop, in a scope of its own; `objects` are known by name, all else is found near it."""
    user = users_frame(sys._getframe(1))
    line = user.f_lineno if user is not None else 0
    record_configs(driver, user)
    try:
        with scopes.measured(name), driver.checkpointing(objects, overhead=None, every=driver.every):
            yield from driver.loop(name, items)
    finally:
        explainer.ended(name, user, line, driver.kept)


def current_driver() -> Driver:
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
    """0, 1, 2, … as long as the test holds. A replay may take some without the test being asked."""

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
    """An f-string, told in parts: texts, and values with their conversion and format."""
    shown: list[str] = []
    kept: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            shown.append(part)
            kept.append(part)
        else:
            value, conversion, form = part
            if conversion in _CONVERSIONS:
                value = _CONVERSIONS[conversion](value)
            shown.append(format(value, form))
            kept.append(value)
    return LoggedText.of("".join(shown), kept)


def print(*values: Any, **how: Any) -> None:
    """The script's own `print`; the numbers that it names are heard."""
    builtins.print(*values, **how)
    if how.get("file") in (None, sys.stdout, sys.stderr):
        script_logs.hear_text("print", values)
