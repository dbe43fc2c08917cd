"""From what a script tells its own loggers to logged values: which sources count, and what in them is a number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from relive.errors import ReliveError
from relive.instrument import dotted, named_numbers
from relive.record import here, open_driver, session
from relive.record.process import warn_once


class LoggedText(str):
    """A text that still has the values it was made of."""

    parts: Sequence[Any]

    @classmethod
    def of(cls, shown: str, parts: Sequence[Any]) -> LoggedText:
        made = cls(shown)
        made.parts = parts
        return made


class LogCapture:
    """Hears what scripts tell, and logs it in the loops they are in."""

    def __init__(self) -> None:
        self.sources: frozenset[str] = frozenset()  # nothing counts before a script is run hands-free
        self.named: frozenset[str] = frozenset()  # told by name somewhere: then a text that tells it too is no news
        self.is_own: Callable[[str], bool] = lambda _path: True  # is a file the project's?
        self.only: dict[tuple[str, int], Collection[str]] = {}  # of these lines, only some names count

    def hear(self, source: str, values: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Names and values, told to a logger that has names."""
        if source in self.sources:
            pairs = values.items() if isinstance(values, Mapping) else values
            self._log([(str(name), value) for name, value in pairs if is_number(value)])

    def hear_always(self, values: Mapping[Any, Any]) -> None:
        """The same, from a callback that somebody asked for."""
        self._log([(str(name), value) for name, value in values.items() if is_number(value)])

    def hear_nested(self, source: str, values: Mapping[Any, Any]) -> None:
        if source in self.sources:
            self.hear(source, dotted(values))

    def hear_text(self, source: str, values: Sequence[Any]) -> None:
        """What was printed, or written as a line of a log."""
        if source not in self.sources:
            return
        try:
            told = named_numbers(_split_parts(values), is_number)
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            warn_once("telling-lost", f"{type(error).__name__}: {error}; what this call tells is not recorded")
            return
        self._log([(name, value) for name, value in told if name not in self.named])

    def _log(self, pairs: Sequence[tuple[str, Any]]) -> None:
        if not pairs:
            return
        if self.only:
            pairs = self._asked(pairs)
        place = here.get() or session.place(open_driver)
        for name, value in pairs:
            place.driver.log(name, value, place)

    def _asked(self, pairs: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        """A statement that a replay added tells what was asked for; the rest of it was told before, or never."""
        frame = sys._getframe(3)
        while frame is not None:
            names = self.only.get((frame.f_code.co_filename, frame.f_lineno))
            if names is not None:
                return [pair for pair in pairs if pair[0] in names]
            frame = frame.f_back  # type: ignore[assignment]
        return pairs


def call_safely(who: str, hear: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Hear a call of a library. A version that looks other than expected must not trouble the script."""
    try:
        hear(*args, **kwargs)
    except ReliveError:
        raise  # a replay that went another way
    except Exception as error:  # noqa: BLE001 - the user's training must go on
        warn_once("telling-lost", f"{who}: {type(error).__name__}: {error}; what it is told is not recorded")


def _split_parts(values: Sequence[Any]) -> list[Any]:
    parts: list[Any] = []
    for at, value in enumerate(values):
        if at:
            parts.append(" ")
        parts += value.parts if isinstance(value, LoggedText) else [value]
    return parts


def is_number(value: Any) -> bool:
    """An int, a float, or a scalar of numpy or torch; truth values are none."""
    if type(value) in (int, float):
        return True
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.number):
        return True
    is_tensor = torch is not None and isinstance(value, torch.Tensor)
    return is_tensor and value.ndim == 0 and value.dtype != torch.bool  # type: ignore[union-attr]


script_logs = LogCapture()
