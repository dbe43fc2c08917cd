"""Where the iterations of a segment lie in its journal, and what was compared before and after a position there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.hindsight.verdicts import Agreement
from relive.hindsight.workers import StateCheck
from relive.store.journal import ROOT, ParsedJournal, line_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

RESTORED, ENTRY = "restored", "entry"
Context = tuple[int, int]  # loop, iteration


class JournalPlaces:
    """Where the iterations of loops lie in the journal of a segment."""

    def __init__(self, journal: ParsedJournal) -> None:
        self._parents = {
            number: (row.parent, row.parent_iteration) for number, row in journal.loops.items() if number != ROOT
        }
        self._ends: dict[int, dict[int, int]] = {}  # loop → iteration → its last position
        self._first: dict[int, int] = {}  # of loops
        self._last: dict[int, int] = {}
        turns = line_schema.lines_of(line_schema.IterationReplayed, journal.lines)
        contexts, index = np.unique(journal.loop.astype(np.int64) << 32 | journal.iteration, return_inverse=True)
        first, last = np.full(len(contexts), 1 << 62), np.zeros(len(contexts), np.int64)
        np.minimum.at(first, index, journal.seq)
        np.maximum.at(last, index, journal.seq)
        found = zip(
            (contexts >> 32).tolist(), (contexts & 0xFFFFFFFF).tolist(), first.tolist(), last.tolist(), strict=True
        )
        for loop, iteration, begin, end in [*found, *((line.loop, line.i, line.seq, line.seq) for line in turns)]:
            for number, inside in self.around((loop, iteration)):
                ends = self._ends.setdefault(number, {})
                ends[inside] = max(end, ends.get(inside, end))
                self._first[number] = min(begin, self._first.get(number, begin))
                self._last[number] = max(end, self._last.get(number, end))

    def around(self, context: Context) -> Iterator[Context]:
        """The iteration itself and those around it, without the top level of the script."""
        while context[0] in self._parents:
            yield context
            context = self._parents[context[0]]

    def end_of(self, context: Context) -> float:
        """The end of an iteration; the end of the segment if it isn't in the journal."""
        end = self._ends.get(context[0], {}).get(context[1])
        return (end if end is not None else max(self._last.values(), default=0)) + 0.5

    def position_of(self, check: StateCheck) -> float:
        if check.position:
            return check.position - 0.5  # the next slot was not written yet
        if check.place == ENTRY:
            return self._first.get(check.loop, 0) - 0.5
        if check.place in ("loop", "end"):
            return self._last.get(check.loop, 0) + 0.5
        ends = self._ends.get(check.loop, {})
        return max((end for iteration, end in ends.items() if iteration <= check.iteration), default=0) + 0.5


class Timeline:
    """Comparisons in the order of their positions; each agrees or differs."""

    def __init__(self, events: list[tuple[float, Context, bool]], places: JournalPlaces) -> None:
        events.sort(key=lambda event: event[0])
        self._positions = np.asarray([position for position, _, _ in events])
        self._agree = np.asarray([agrees for _, _, agrees in events], bool)
        self._agreeing = np.concatenate([[0], np.cumsum(self._agree)]).astype(np.int64)
        own: dict[int, list[int]] = {}  # iteration → how many differ and how many agree inside it
        for _, context, agrees in events:
            for loop, iteration in places.around(context):
                own.setdefault(loop << 32 | iteration, [0, 0])[agrees] += 1
        self._own_contexts = np.asarray(sorted(own), np.int64)
        self._own = np.asarray([own[key] for key in sorted(own)] or [[0, 0]], np.int64)

    def between(self, since: NDArray[Any], position: NDArray[Any], context: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """The results of all comparisons between two positions and in an iteration, and whether one there agrees."""
        first = np.searchsorted(self._positions, since, side="left")
        last = np.maximum(first, np.searchsorted(self._positions, position, side="right"))
        own = np.zeros((len(context), 2), np.int64)
        if len(self._own_contexts):
            at = np.searchsorted(self._own_contexts, context).clip(max=len(self._own_contexts) - 1)
            own = self._own[at] * (self._own_contexts[at] == context)[:, None]
        agree = self._agreeing[last] - self._agreeing[first]
        differs = (own[:, 0] > 0) | (last - first > agree)
        agrees = (agree > 0) | (own[:, 1] > 0)
        result = np.where(differs, Agreement.DIFFERS, np.where(agrees, Agreement.AGREES, Agreement.NOTHING))
        return result.astype(np.int64), own[:, 1] > 0

    def after(self, position: NDArray[Any]) -> tuple[Ints, NDArray[Any]]:
        """The results of the first comparisons after some positions, and where they are."""
        at = np.searchsorted(self._positions, position, side="right")
        results = np.where(np.append(self._agree, False), Agreement.AGREES, Agreement.DIFFERS)
        results[-1] = Agreement.NOTHING
        return results[at].astype(np.int64), np.append(self._positions, np.inf)[at]
