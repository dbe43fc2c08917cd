"""What of a run could not be recorded, counted by name and reason; and what stands for the journal meanwhile."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Any

from relive.store.journal import Journal, line_schema

MAX_KEPT_LOOPS = 100_000  # loops and items that are remembered while the journal can't be written
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EFBIG: "the file is as large as it may be",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.ENOMEM: "there is no memory left",
    errno.EROFS: "the disk can only be read",
}


def reason_of(error: BaseException) -> str:
    """Returns why something could not be written, in few words."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    if isinstance(cause, OSError) and cause.errno in _REASONS:
        return _REASONS[cause.errno]
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


class Losses:
    """Counts what is lost. Any thread may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # What and why → how many, how many of them the journal tells of, since when.
        self._counts: dict[tuple[str, str], list[int]] = {}

    def note(self, what: str, why: str) -> None:
        with self._lock:
            found = self._counts.setdefault((what, why), [0, 0, time.time_ns()])
            found[0] += 1

    def record(self, line: Callable[..., None]) -> None:
        """Records each count that has changed since it was recorded last; `line` writes one to the journal."""
        with self._lock:
            changed = [(key, found, found[0]) for key, found in self._counts.items() if found[0] != found[1]]
        for (what, why), found, count in changed:
            line(line_schema.RecordsLost, what=what, why=why, count=count, wall_ns=found[2])
            found[1] = count  # only now: a count that could not be written is recorded later

    def describe(self) -> str:
        """Returns one sentence about everything that was lost; an empty one if nothing was."""
        with self._lock:
            return "; ".join(f"{found[0]} {what} ({why})" for (what, why), found in self._counts.items())


class PausedJournal:
    """Stands for a journal that can't be written now: counts values, and keeps loops so that it can go on later."""

    def __init__(self, journal: Journal, losses: Losses, why: str) -> None:
        self._journal = journal
        self._losses = losses
        self._why = why
        self._lock = threading.RLock()
        self._kept: list[tuple[str, tuple[Any, ...]]] = []
        self._is_resumed = False

    def resume(self) -> Journal | None:
        """Returns the journal if it can be written again, with the loops that began and ended meanwhile."""
        with self._lock:
            if len(self._kept) >= MAX_KEPT_LOOPS:
                return None
            try:
                self._journal.make_room(len(self._kept) + 1)
                while self._kept:
                    method, given = self._kept[0]
                    getattr(self._journal, method)(*given)
                    del self._kept[0]
            except OSError:
                return None
            self._is_resumed = True
            return self._journal

    # --- what a driver asks of a journal ----------------------------------------------------------------------------

    def append_float(self, name: str, *_: Any) -> None:
        self._losses.note(f"values of {name}", self._why)

    append_int = append_float

    def name_id(self, name: str) -> int:
        self.append_float(name)
        return 1

    def line(self, kind: type[line_schema.JournalLine], *_: Any, **_fields: Any) -> None:
        if kind is not line_schema.ValueLogged:  # its name was asked for, and counted
            self._losses.note(f"lines of kind {kind.__struct_config__.tag}", self._why)

    def begin_loop(self, name: str, parent: int, parent_iteration: int) -> int:
        loop = self._journal.reserve_loop()
        self._keep("begin_loop", name, parent, parent_iteration, loop)
        return loop

    def append_loop_range(self, *given: Any) -> None:
        self._keep("append_loop_range", *given)

    def append_loop_item(self, *given: Any) -> None:
        self._keep("append_loop_item", *given)

    def end_loop(self, *given: Any) -> None:
        self._keep("end_loop", *given)

    def mark(self, *_: Any) -> None:
        """Does nothing: a mark is only a time."""

    def loops_begun(self) -> int:
        return self._journal.loops_begun()

    def _keep(self, method: str, *given: Any) -> None:
        with self._lock:
            if self._is_resumed:
                getattr(self._journal, method)(*given)
            elif len(self._kept) < MAX_KEPT_LOOPS:
                self._kept.append((method, given))
