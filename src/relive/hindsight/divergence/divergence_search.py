"""Finds where two courses parted: walks the moments that both have, in order, to the first that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relive.checkpoint.analysis import has_volatile_name
from relive.checkpoint.graph import GraphState
from relive.errors import Damaged, NotFound
from relive.hindsight.divergence.course import DIGEST, LENGTH, LOGGED, STATE, Compared, Course, Parting, Terms
from relive.hindsight.divergence.graph_difference import (
    CLOCK,
    GENERATOR,
    NUMBERS,
    TEXT,
    VALUE,
    GraphDifference,
    LeafDifference,
    compare_states,
    moved_generators,
)
from relive.hindsight.divergence.run_trace import ENTRY, RankTrace, StateMoment, match_loops
from relive.hindsight.verification import ValuePairs, displayed_value, pair_values
from relive.store.journal import ROOT, slot_kinds

MAX_SCANNED = 32  # checkpoints that are compared one after the other; among more, bisection finds the first
PARAMETERS = "parameters"
_METER_PARTS = frozenset({"val", "value", "avg", "average", "mean", "sum", "total", "count", "last"})


def find_parting(one: RankTrace, other: RankTrace, terms: Terms) -> Course:
    """Compares two courses. Ranks, runs and machines may be any."""
    return _Search(one, other, terms).run()


class _Search:
    def __init__(self, one: RankTrace, other: RankTrace, terms: Terms) -> None:
        self._one, self._other, self._terms = one, other, terms
        self._loops, notes = match_loops(one, other)
        self.course = Course(notes=notes)
        pairs = self._common_moments()
        self._states = [pair for pair in pairs if pair[0].read is not None]
        digests = [pair for pair in pairs if pair[0].read is None]
        self._digests = [pair for pair in digests if pair[0].leaves == pair[1].leaves]
        if len(self._digests) < len(digests):
            self.course.notes.append("digests of the parameters hold other tensors in each run and were not compared")
        self._differences: dict[int, GraphDifference] = {}
        self._unreadable: set[int] = set()
        self._used: set[str] | None = None

    def run(self) -> Course:
        course = self.course
        state = first_differing(len(self._states), lambda at: bool(self._decisive(at)))
        digest = next((pair for pair in self._digests if pair[0].digest != pair[1].digest), None)
        values = self._pair_values()
        value = self._first_value(values)
        found = (self._state_parting(state), self._digest_parting(digest), value, self._loop_parting())
        candidates = [one for one in found if one is not None]
        if candidates:
            first = min(candidates, key=lambda one: (one.order, one.what != STATE))
            course.parted = self._complete(first, values)
            if not _has_numbers(course.parted):
                course.numbers = self._first_numbers(candidates, values)
        self._count(values)
        self._note_extent()
        self._note_unpaired(values)
        return course

    # --- states -----------------------------------------------------------------------------------------------------

    def _common_moments(self) -> list[tuple[StateMoment, StateMoment]]:
        there = {}
        for moment in self._other.moments:
            if moment.loop in self._loops:
                _, *rest = moment.key
                there[self._loops[moment.loop], *rest] = moment
        return [(moment, there[moment.key]) for moment in self._one.moments if moment.key in there]

    def _compared(self, at: int) -> GraphDifference | None:
        """How two states differ; None if one of them can't be read any more."""
        if at not in self._differences and at not in self._unreadable:
            one, other = (self._read(moment) for moment in self._states[at])
            if one is None or other is None:
                self._unreadable.add(at)
            else:
                self._differences[at] = compare_states(one, other)
        return self._differences.get(at)

    def _read(self, moment: StateMoment) -> GraphState | None:
        try:
            return moment.read() if moment.read is not None else None
        except (Damaged, NotFound) as error:
            self.course.notes.append(f"the state at {moment.where} can't be read: {error}")
            return None

    def _decisive(self, at: int) -> list[LeafDifference]:
        found = self._compared(at)
        return [leaf for leaf in found.leaves if self._is_decisive(leaf)] if found is not None else []

    def _is_decisive(self, leaf: LeafDifference) -> bool:
        if not leaf.is_decisive or self._is_ignored(leaf.path) or self._arg_of(leaf) is not None:
            return False
        if leaf.kind == GENERATOR:
            return leaf.path in self._used_generators()
        return not self._is_clock(leaf)

    def _is_clock(self, leaf: LeafDifference) -> bool:
        if leaf.kind != VALUE or type(leaf.one) not in (int, float) or type(leaf.other) not in (int, float):
            return False
        is_time = self._one.is_clock(float(leaf.one)) and self._other.is_clock(float(leaf.other))
        return is_time or has_volatile_name(_own_name(leaf.path))

    def _is_ignored(self, name: str) -> bool:
        return any(name == one or name.startswith((f"{one}.", f"{one}[")) for one in self._terms.ignored)

    def _arg_of(self, leaf: LeafDifference) -> str | None:
        """The arg whose two values a leaf has."""
        if leaf.kind not in (VALUE, TEXT):
            return None
        here = (type(leaf.one), leaf.one, leaf.other)
        return next((name for name, (one, other) in self._terms.args.items() if (type(one), one, other) == here), None)

    def _used_generators(self) -> set[str]:
        """Global generators that a run draws from while it trains; one that is not used may differ each time."""
        if self._used is None:
            self._used = set()
            for moments in (self._one.moments, self._other.moments):
                known = [moment for moment in moments if moment.read is not None]
                ends = [state for moment in (*known[:1], *known[1:][-1:]) if (state := self._read(moment)) is not None]
                if len(ends) > 1:
                    self._used |= moved_generators(*ends)
        return self._used

    # --- values -----------------------------------------------------------------------------------------------------

    def _pair_values(self) -> ValuePairs:
        journal = self._other.journal
        unmatched = max([*self._one.journal.loops, *journal.loops, 0]) + 1
        table = {number: self._loops.get(number, unmatched + number) for number in {*journal.loops, ROOT}}
        if len(journal):
            numbers, inverse = np.unique(journal.loop, return_inverse=True)
            mapped = np.asarray([table.get(int(number), unmatched + int(number)) for number in numbers], np.int64)
            journal = replace(journal, loop=mapped[inverse.reshape(-1)])
        return pair_values(self._one.journal, journal)

    def _first_value(self, pairs: ValuePairs) -> Parting | None:
        """The first logged value that differs, or that only one side has although both came past it."""
        journal, theirs = self._one.journal, self._other.journal
        differing = np.flatnonzero(~pairs.is_same & ~pairs.is_volatile)
        rows = sorted((int(journal.seq[pairs.one[at]]), int(at)) for at in differing)
        clocks = {journal.names[int(journal.name[pairs.one[at]])] for at in np.flatnonzero(~pairs.is_same)}
        self.course.aside += [LeafDifference(name, CLOCK) for name in sorted(clocks) if has_volatile_name(name)]
        for _, at in rows:
            row, other = int(pairs.one[at]), int(pairs.other[at])
            if not self._is_left_aside(row, other):
                shown = displayed_value(journal, row), displayed_value(theirs, other)
                return self._value_parting(row, *shown)
        return None

    def _is_left_aside(self, row: int, other: int) -> bool:
        """Texts may hold times and paths; they show no difference of the training."""
        journal, theirs = self._one.journal, self._other.journal
        name = journal.names[int(journal.name[row])]
        if self._is_ignored(name):
            return True
        kinds = int(journal.kind[row]), int(theirs.kind[other])
        if kinds != (slot_kinds.LINE, slot_kinds.LINE) or journal.text is None or theirs.text is None:
            return False
        texts = journal.text[row], theirs.text[other]
        if not all(str(text).startswith('"') for text in texts):
            return False
        self.course.aside.append(LeafDifference(name, TEXT, *texts))
        return True

    def _value_parting(self, row: int, one: Any, other: Any) -> Parting:
        journal = self._one.journal
        loop, iteration = int(journal.loop[row]), int(journal.iteration[row])
        main, at = self._one.main_iteration(loop, iteration)
        return Parting(
            self._one.where(loop, iteration), LOGGED, journal.names[int(journal.name[row])], main, at,
            float(journal.seq[row]), one, other,
        )  # fmt: skip

    # --- partings ---------------------------------------------------------------------------------------------------

    def _state_parting(self, at: int | None) -> Parting | None:
        if at is None:
            return None
        moment, leaves = self._states[at][0], self._decisive(at)
        main, iteration = self._one.main_iteration(moment.loop, moment.iteration)
        return Parting(
            moment.where, STATE, leaves[0].path, main, iteration if moment.place != ENTRY else -1, moment.order,
            leaves[0].one, leaves[0].other, tuple(leaves), moment.where,
        )  # fmt: skip

    def _digest_parting(self, pair: tuple[StateMoment, StateMoment] | None) -> Parting | None:
        if pair is None:
            return None
        return Parting(pair[0].where, DIGEST, PARAMETERS, pair[0].loop, pair[0].iteration, pair[0].order)

    def _loop_parting(self) -> Parting | None:
        """The first loop inside another one that has another number of iterations."""
        ours, theirs = self._one, self._other
        found = [
            (ours.ends[mine], mine, ours.begun[mine], theirs.begun[other])
            for other, mine in self._loops.items()
            if mine in ours.ends and other in theirs.ends and ours.begun[mine] != theirs.begun[other]
            and ours.journal.loops[mine].parent != ROOT
        ]  # fmt: skip
        if not found:
            return None
        order, loop, one, other = min(found)
        row = ours.journal.loops[loop]
        main, at = ours.main_iteration(row.parent, row.parent_iteration)
        where = ours.where(row.parent, row.parent_iteration)
        return Parting(where, LENGTH, row.name, main, at, order, one, other)

    def _complete(self, parted: Parting, values: ValuePairs) -> Parting:
        """Adds the leaves, if another moment has them, and the last moment that agreed."""
        if not parted.leaves:
            later = [at for at, (one, _) in enumerate(self._states) if one.order >= parted.order]
            at = next((at for at in later if self._decisive(at)), None)
            if at is not None:
                leaves, where = tuple(self._decisive(at)), self._states[at][0].where
                named = next((leaf.path for leaf in leaves if leaf.kind == NUMBERS), leaves[0].path)
                leaf = named if parted.what == DIGEST else parted.leaf
                parted = replace(parted, leaf=leaf, leaves=leaves, leaves_where=where)
        agreed = self._last_agreed(parted, values)
        if agreed is None:
            return parted
        where, loop, iteration = agreed
        between = parted.iteration - iteration - 1 if loop == parted.loop else None
        return replace(
            parted, last_agreed=where, last_agreed_iteration=iteration,
            between=max(0, between) if between is not None else None,
        )  # fmt: skip

    def _last_agreed(self, parted: Parting, values: ValuePairs) -> tuple[str, int, int] | None:
        """The last moment before a parting whose state agreed; without any, the last iteration whose values did."""
        pairs = [pair for at, pair in enumerate(self._states) if self._agreed(at, parted.order)]
        pairs += [pair for pair in self._digests if pair[0].order < parted.order and pair[0].digest == pair[1].digest]
        if pairs:
            moment = max((one for one, _ in pairs), key=lambda one: one.order)
            loop, iteration = self._one.main_iteration(moment.loop, moment.iteration)
            return self._with_unknown(moment), loop, iteration if moment.place != ENTRY else -1
        journal = self._one.journal
        rows = [int(row) for row in values.one[values.is_same] if journal.seq[row] < parted.order]
        if not rows:
            return None
        row = max(rows, key=lambda row: int(journal.seq[row]))
        place = int(journal.loop[row]), int(journal.iteration[row])
        return self._one.where(*place), *self._one.main_iteration(*place)

    def _with_unknown(self, moment: StateMoment) -> str:
        at = next((at for at, pair in enumerate(self._states) if pair[0] is moment), None)
        found = self._compared(at) if at is not None else None
        unknown = found.unknown if found is not None else 0
        return f"{moment.where}, but for {unknown} objects that could not be looked at" if unknown else moment.where

    def _agreed(self, at: int, before: float) -> bool:
        """Whether a moment is known to have agreed: bisection does not look at all of them."""
        return at in self._differences and self._states[at][0].order < before and not self._decisive(at)

    def _first_numbers(self, candidates: Sequence[Parting], values: ValuePairs) -> Parting | None:
        """The first moment at which memory or logged numbers differ."""
        found = [one for one in candidates if one.what != STATE]
        count = len(self._states)
        at = first_differing(count, lambda at: any(leaf.kind == NUMBERS for leaf in self._decisive(at)))
        state = self._state_parting(at)
        found += [state] if state else []
        return self._complete(min(found, key=lambda one: one.order), values) if found else None

    # --- how much ---------------------------------------------------------------------------------------------------

    def _count(self, values: ValuePairs) -> None:
        course, differences = self.course, self._differences.values()
        course.compared = Compared(
            len(self._differences), max((one.agreed + len(one.leaves) for one in differences), default=0),
            len(self._digests), max((one.leaves for one, _ in self._digests), default=0),
            len(values.one), max((one.unknown for one in differences), default=0), len(self._states),
        )  # fmt: skip
        leaves = {(leaf.path, leaf.kind): leaf for one in differences for leaf in one.leaves}
        course.settings = [leaf for leaf in leaves.values() if leaf.kind in (VALUE, TEXT) and self._arg_of(leaf)]
        known = {leaf.path for leaf in course.settings}
        course.aside += [
            leaf for leaf in leaves.values() if not self._is_decisive(leaf) and leaf.path not in known
        ]  # fmt: skip
        course.aside = list({leaf.path: leaf for leaf in course.aside}.values())
        course.only_one = [*dict.fromkeys(name for one in differences for name in one.only_one), *values.names_of_one]
        course.only_other = [
            *dict.fromkeys(name for one in differences for name in one.only_other), *values.names_of_other
        ]  # fmt: skip

    def _note_extent(self) -> None:
        """Notes iterations that only one side has, and checkpoints that could not be compared."""
        notes = self.course.notes
        for theirs, mine in self._loops.items():
            one, other = self._one.begun.get(mine, 0), self._other.begun.get(theirs, 0)
            row = self._one.journal.loops.get(mine)
            if row is not None and row.parent == ROOT and one != other:
                more, fewer = (self._one, self._other) if one > other else (self._other, self._one)
                notes.append(
                    f"{row.name}: {more.name} has {max(one, other)} iterations, {fewer.name} has {min(one, other)}"
                    f" ({'it ended' if fewer.is_ended else 'it was cut short'}); the rest can't be compared"
                )
        if self._unreadable:
            notes.append(f"{len(self._unreadable)} of {len(self._states)} common checkpoints were not compared")
        for trace in (self._one, self._other):
            if trace.old_checkpoints:
                notes.append(
                    f"{trace.old_checkpoints} checkpoints of {trace.name} were taken by an earlier release and"
                    " can't be compared; record the run again to compare its state"
                )
            elif not trace.moments:
                notes.append(
                    f"{trace.name} has no checkpoints, so only logged values were compared; train inside"
                    " `with relive.checkpointing(model=…)`, or record with `relive run`"
                )

    def _note_unpaired(self, values: ValuePairs) -> None:
        """Notes names that one side logged more often, in iterations that both ran to their end."""
        mine = {mine: theirs for theirs, mine in self._loops.items()}
        for trace, against, rows, loops in (
            (self._one, self._other, values.only_one, mine),
            (self._other, self._one, values.only_other, self._loops),
        ):
            journal, found = trace.journal, Counter[str]()
            for row in rows.tolist():
                loop, iteration = loops.get(int(journal.loop[row])), int(journal.iteration[row])
                if loop is not None and against.is_complete(loop, iteration):
                    found[journal.names[int(journal.name[row])]] += 1
            self.course.notes += [
                f"{name}: {count} values of {trace.name} have no counterpart" for name, count in found.items()
            ]


def first_differing(count: int, differs: Callable[[int], bool]) -> int | None:
    """Returns the first of some moments that differs, looking at all if they are few; else by bisection.

    Courses that have parted rarely meet again: if the last moment differs, bisection finds one that differs and whose
    predecessor does not. If it agrees, all are looked at.
    """
    if count <= MAX_SCANNED or not differs(count - 1):
        return next((at for at in range(count) if differs(at)), None)
    low, high = -1, count - 1  # `low` agrees, `high` differs
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle) else (middle, high)
    return high


def _own_name(path: str) -> str:
    """The name of a leaf; of a part of a meter, such as `batch_time.avg`, that of the meter."""
    *holders, last = path.rstrip("]").replace("[", ".").split(".")
    return holders[-1] if holders and last.strip("'") in _METER_PARTS else last.strip("'")


def _has_numbers(parted: Parting) -> bool:
    return parted.what != STATE or any(leaf.kind == NUMBERS for leaf in parted.leaves)
