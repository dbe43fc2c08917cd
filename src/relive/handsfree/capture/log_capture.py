"""Captures numbers that a script passes to its own loggers or prints, and logs them to the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from relive.errors import ReliveError
from relive.handsfree.sweeps import open_run_of_call
from relive.instrument import find_named_numbers, flatten_dict
from relive.record import Place, current_place, open_driver, scalar_dtype, session
from relive.record.process import warn_once


class LoggedText(str):
    """A formatted string that still has the values it was formatted from."""

    parts: Sequence[Any]

    @classmethod
    def of(cls, text: str, parts: Sequence[Any]) -> LoggedText:
        logged = cls(text)
        logged.parts = parts
        return logged


class LogCapture:
    """Logs captured values at the current place of the script, if their source is enabled."""

    def __init__(self) -> None:
        self.sources: frozenset[str] = frozenset()  # enabled sources; none until a script runs hands-free
        self.explicit_names: frozenset[str] = frozenset()  # that the source passes to a logger
        self.holds_back = True  # texts with these names, until it is known whether the logger runs; else drops them
        self._held: list[tuple[Place, str, Any]] = []  # values of texts whose name a logger may log at the same place
        self._logged: dict[str, Place] = {}  # where a logger last logged a name
        self._pid = os.getpid()  # of the process that held values back
        self.is_project_file: Callable[[str], bool] = lambda _path: True
        self.only: dict[tuple[str, int], Collection[str]] = {}  # (file, line) → the names to capture there

    def capture(self, source: str, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Logs the numbers among names and values that were passed to a logger."""
        if source in self.sources:
            pairs = values.items() if isinstance(values, Mapping) else values
            self._log_explicitly([(str(name), value) for name, value in pairs if is_number(value)])

    def capture_always(self, values: Mapping[Any, Any]) -> None:
        """The same without a source that can be disabled, for callbacks that the user installed."""
        self._log_explicitly([(str(name), value) for name, value in values.items() if is_number(value)])

    def capture_nested(self, source: str, values: Mapping[Any, Any]) -> None:
        """The same for nested mappings, whose keys are joined by dots."""
        if source in self.sources:
            self.capture(source, flatten_dict(values))

    def capture_text(self, source: str, values: Sequence[Any]) -> None:
        """Logs the named numbers in a printed or logged text."""
        if source not in self.sources:
            return
        try:
            pairs = find_named_numbers(_split_parts(values), is_number)
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            _warn_lost(f"{type(error).__name__}: {error}")
            return
        self._log([(name, value) for name, value in pairs if name not in self.explicit_names])
        if self.holds_back:
            self._hold([(name, value) for name, value in pairs if name in self.explicit_names])

    def flush(self, here: Place | None = None) -> None:
        """Logs the values held back at places that are left when the script is at `here`; None: all of them."""
        held, self._held = self._held, []
        if self._pid != os.getpid():
            return  # a forked child: its parent logs them
        self._held = [one for one in held if _is_around(one[0], here)]
        for place, name, value in held:
            if not _is_around(place, here):
                place.driver.log(name, value, place)

    def _log_explicitly(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Logs what was passed to a logger, in place of what a text at the same place said."""
        here, names = _here(), {name for name, _ in pairs}
        self.flush(here)
        self._held = [one for one in self._held if one[0] is not here or one[1] not in names]
        self._logged.update(dict.fromkeys(names & self.explicit_names, here))
        self._log(pairs)

    def _hold(self, pairs: Sequence[tuple[str, Any]]) -> None:
        here = _here()
        self.flush(here)
        self._pid = os.getpid()
        kept = self._requested(pairs, depth=2) if self.only else pairs
        self._held += [(here, name, value) for name, value in kept if self._logged.get(name) is not here]

    def _log(self, pairs: Sequence[tuple[str, Any]]) -> None:
        if not pairs:
            return
        if self.only:
            pairs = self._requested(pairs, depth=3)
        place = _here()
        for name, value in pairs:
            place.driver.log(name, value, place)

    def _requested(self, pairs: Sequence[tuple[str, Any]], *, depth: int) -> Sequence[tuple[str, Any]]:
        """Filters the values of a statement that a replay added: only the requested names count."""
        frame = sys._getframe(depth)
        while frame is not None:
            names = self.only.get((frame.f_code.co_filename, frame.f_lineno))
            if names is not None:
                return [pair for pair in pairs if pair[0] in names]
            frame = frame.f_back  # type: ignore[assignment]
        return pairs


def _here() -> Place:
    open_run_of_call()
    return current_place.get() or session.place(open_driver)


def _is_around(place: Place, inner: Place | None) -> bool:
    """Whether a place is this one, or one around it."""
    while inner is not None and inner is not place:
        inner = inner.parent
    return inner is not None


def call_safely(who: str, listener: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Calls a listener for a library; an unexpected version of the library must not disturb the script."""
    try:
        listener(*args, **kwargs)
    except ReliveError:
        raise  # a replay that diverged
    except Exception as error:  # noqa: BLE001 - the user's training must go on
        _warn_lost(f"{who}: {type(error).__name__}: {error}")


def _warn_lost(reason: str) -> None:
    warn_once("telling-lost", f"{reason}; the values of this call are not recorded, log them with relive.log")


def _split_parts(values: Sequence[Any]) -> list[Any]:
    """Returns the parts of all values, separated by spaces as `print` does."""
    parts: list[Any] = []
    for at, value in enumerate(values):
        if at:
            parts.append(" ")
        parts += value.parts if isinstance(value, LoggedText) else [value]
    return parts


def is_number(value: Any) -> bool:
    """Whether a value is an int, a float, or a scalar or 0-dimensional array of numbers, but no bool."""
    return type(value) in (int, float) or scalar_dtype(value) not in (None, "bool")


script_logs = LogCapture()
