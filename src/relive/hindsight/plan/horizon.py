"""How far the record shows that a run came, and which values of a replay lie within that."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np

from relive.hindsight.plan.run_profile import ITERATION, count_iterations
from relive.store.journal import ROOT, LoopRow, ParsedJournal, line_schema, slot_kinds

LoggedKey = tuple[int, int, str]  # loop, iteration, name
_VALUES, _BEGUN, _ENDED, _ENTERED, _LEFT = "values", "begun", "ended", "entered", "left"
_REGULAR = (slot_kinds.LEFT_EXHAUSTED, slot_kinds.LEFT_BY_CODE)


class Horizon(msgspec.Struct, frozen=True):
    """The iterations of a rank that its record does not show to be complete.

    All other iterations are complete: a later one began, or their loop was left regularly. In an incomplete iteration
    a replay is within the horizon up to the last recorded value, loop or iteration that it meets again.
    """

    is_whole: bool  # the run ended normally: only iterations that an error left are in doubt
    has_end: bool  # the run recorded its end, so exit handlers ran; else it was killed, or is running
    last: dict[int, int]  # the last iteration shown to have begun, of each loop not shown to be complete; -1: none
    by_error: list[int]  # those of them that an error left
    unclear: list[int]  # those of them that ended, in a way that older records don't tell
    ended: list[int]  # those of them whose last iteration is shown to have ended
    inside: list[int]  # loops that began in incomplete iterations
    counts: list[tuple[int, int, str, int]]  # loop, iteration, name, recorded values, in incomplete iterations


def read_horizon(journal: ParsedJournal, *, is_finished: bool) -> Horizon | None:
    """Returns the horizon of a rank; None if it finished, and no error left one of its loops."""
    open_rows = [row for row in journal.loops.values() if _is_incomplete(row, journal, is_finished=is_finished)]
    if is_finished and not open_rows:
        return None
    last = {row.loop: count_iterations(row, journal) - 1 for row in open_rows}
    contexts = set(last.items()) | (set() if is_finished else {(ROOT, 0)})
    taken = line_schema.lines_of(line_schema.CheckpointTaken, journal.lines)
    ended = {line.loop for line in taken if line.place == ITERATION and last.get(line.loop) == line.i}
    return Horizon(
        is_finished, bool(line_schema.lines_of(line_schema.RunEnded, journal.lines)), last,
        [row.loop for row in open_rows if row.left == slot_kinds.LEFT_BY_ERROR],
        [row.loop for row in open_rows if row.ended_us is not None and row.left == slot_kinds.LEFT_UNKNOWN],
        sorted(ended),
        [row.loop for row in journal.loops.values() if (row.parent, row.parent_iteration) in contexts],
        _count_values(journal, contexts),
    )  # fmt: skip


def _is_incomplete(row: LoopRow, journal: ParsedJournal, *, is_finished: bool) -> bool:
    if row.left in _REGULAR:
        return False
    if row.ended_us is None or row.left == slot_kinds.LEFT_BY_ERROR:
        return not is_finished or row.ended_us is not None
    # Errors end the loops they leave: whether this was one, only a loop or iteration that began later shows.
    begun = max((loop.begun_us for loop in journal.loops.values()), default=0)
    return not is_finished and row.ended_us >= max(begun, *(time_us for _, _, time_us in journal.marks[-1:]), 0)


def _count_values(journal: ParsedJournal, contexts: Collection[tuple[int, int]]) -> list[tuple[int, int, str, int]]:
    wanted = np.asarray([loop << 32 | max(0, iteration) for loop, iteration in contexts], np.int64)
    rows = np.flatnonzero(np.isin(journal.loop.astype(np.int64) << 32 | journal.iteration, wanted))
    found = Counter(
        zip(journal.loop[rows].tolist(), journal.iteration[rows].tolist(), journal.name[rows].tolist(), strict=True)
    )
    return [(loop, iteration, journal.names[name], count) for (loop, iteration, name), count in found.items()]


class LoopPlace(Protocol):
    """The iteration in which a value is logged, and the places around it."""

    loop: int
    iteration: int

    @property
    def parent(self) -> Any: ...


class HorizonTracker:
    """Follows a replay, and tells which values of the asked names the record shows to have happened.

    A value in an incomplete iteration counts once the same thread meets something that is in the record: a value of
    another name, a loop, or the next iteration. Each event returns False where the replay leaves the record.
    """

    def __init__(self, horizon: Horizon, loops: Iterable[int], names: Collection[str]) -> None:
        self._horizon = horizon
        self._loops = frozenset(loops)
        self._names = frozenset(names)
        self._counts: Mapping[LoggedKey, int] = {tuple(key): count for *key, count in horizon.counts}  # type: ignore[misc]
        self._seen: Counter[LoggedKey] = Counter()
        self._pending: dict[int, dict[LoggedKey, int]] = {}  # thread → the first value of each key in doubt
        self._beyond: dict[LoggedKey, int] = {}  # the same of values that are beyond
        self._to_meet = self._recorded_events()
        self.is_past = False

    @property
    def is_whole(self) -> bool:
        return self._horizon.is_whole

    def _recorded_events(self) -> set[tuple[str, Any]]:
        """Everything that is recorded of the incomplete iterations."""
        horizon = self._horizon
        found: set[tuple[str, Any]] = {(_VALUES, key) for key in self._counts if key[2] not in self._names}
        found |= {(_BEGUN, loop) for loop, last in horizon.last.items() if last >= 0}
        found |= {(_ENDED, loop) for loop in horizon.ended} | {(_ENTERED, loop) for loop in horizon.inside}
        return found | {(_LEFT, loop) for loop in horizon.inside if loop not in horizon.last}

    @property
    def is_at_end(self) -> bool:
        """Whether everything that is recorded of the incomplete iterations has been met."""
        return not self._to_meet

    @property
    def is_over(self) -> bool:
        """Whether the replay is where the record of a run without an end breaks off: nothing more can be shown."""
        return not self._to_meet and not self._horizon.has_end

    def is_in_doubt(self, loop: int) -> bool:
        return loop in self._horizon.last

    def note_value(self, name: str, place: LoopPlace, *, is_here: bool = True) -> bool:
        """`is_here`: the script is at this place; values that were held back are logged later."""
        key = place.loop, place.iteration, name
        self._seen[key] += 1
        is_recorded = place.loop == ROOT or place.loop in self._loops
        is_complete = self._is_complete(place)
        if name in self._names:
            if self.is_past:
                self._beyond.setdefault(key, self._seen[key] - 1)
            elif not is_complete:
                self._pending.setdefault(threading.get_ident(), {}).setdefault(key, self._seen[key] - 1)
            return True
        if is_complete:
            return self._show() if is_recorded and is_here else True
        recorded = self._counts.get(key, 0) if is_recorded else 0
        if self._seen[key] == recorded:
            self._to_meet.discard((_VALUES, key))
        if self._seen[key] > recorded:
            return False
        return self._show() if is_here else True

    def begin_iteration(self, loop: int, iteration: int) -> bool:
        if loop not in self._loops:
            return True
        last = self._horizon.last.get(loop)
        if last is not None and iteration > last:
            return False
        if iteration == last:
            self._to_meet.discard((_BEGUN, loop))
        return self._show()

    def end_iteration(self, loop: int, iteration: int) -> bool:
        last = self._horizon.last.get(loop)
        if loop in self._loops and (last is None or iteration < last):
            return self._show()
        if loop in self._horizon.ended and iteration == self._horizon.last[loop]:
            self._to_meet.discard((_ENDED, loop))
            self._show()
        return True

    def enter_loop(self, loop: int) -> bool:
        """A loop of the record begins."""
        self._to_meet.discard((_ENTERED, loop))
        return self._show()

    def leave_loop(self, loop: int, how: int) -> bool:
        if loop not in self._loops:
            return True
        if loop not in self._horizon.last:
            self._to_meet.discard((_LEFT, loop))
            return self._show()
        if how == slot_kinds.LEFT_BY_ERROR and loop in self._horizon.by_error:
            return self._show()  # by the error that the run met: what came before it happened
        return how not in _REGULAR or loop in self._horizon.unclear

    def note_recorded_end(self) -> None:
        """The replay ended as the run did: what it logged until then happened."""
        if not self.is_past:
            self._pending.clear()

    def go_past(self) -> None:
        """From here on, nothing is in the record."""
        self.is_past = True

    def unshown(self) -> list[tuple[int, int, str, int]]:
        """The values that the record does not show: loop, iteration, name, and the ordinal of the first one."""
        found = dict(self._beyond)
        for pending in self._pending.values():
            found |= {key: min(first, found.get(key, first)) for key, first in pending.items()}
        return [(*key, first) for key, first in found.items()]

    def _show(self) -> bool:
        if not self.is_past:
            self._pending.pop(threading.get_ident(), None)
        return True

    def _is_complete(self, place: LoopPlace) -> bool:
        """Whether the innermost recorded iteration around a place is complete."""
        while place.loop not in self._loops and place.parent is not None:
            place = place.parent
        if place.loop not in self._loops:
            return self._horizon.is_whole
        last = self._horizon.last.get(place.loop)
        return last is None or place.iteration < last


def shown_rows(parsed: ParsedJournal, unshown: Iterable[tuple[int, int, str, int]]) -> list[bool]:
    """Marks the logged values of a worker that the record shows to have happened."""
    first_unshown = {(loop, iteration, name): first for loop, iteration, name, first in unshown}
    seen: Counter[LoggedKey] = Counter()
    shown: list[bool] = []
    for loop, iteration, name in zip(
        parsed.loop.tolist(), parsed.iteration.tolist(), parsed.name.tolist(), strict=True
    ):
        key = loop, iteration, parsed.names[name]
        shown.append(key not in first_unshown or seen[key] < first_unshown[key])
        seen[key] += 1
    return shown


def describe_position(journal: ParsedJournal, horizon: Horizon) -> str:
    """Names the innermost iteration in which a run ended: `epoch 15 step 3`; empty outside of loops."""
    begun = [journal.loops[number] for number, last in horizon.last.items() if last >= 0]
    if not begun:
        return ""
    inner = max(begun, key=lambda row: (len(row.path), row.loop))
    parts: list[str] = []
    row, iteration = inner, horizon.last[inner.loop]
    while True:
        item = journal.known_items.at(row.loop, iteration)
        parts.append(f"{row.name} {item if isinstance(item, int | str | float) else row.value(iteration)}")
        if row.parent not in journal.loops:
            return " ".join(reversed(parts))
        row, iteration = journal.loops[row.parent], row.parent_iteration
