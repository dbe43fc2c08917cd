"""The evidence about each value of a replayed segment: what was compared before it, in its iteration, and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from relive.hindsight.verdicts import (
    INCOMPLETE,
    MAYBE,
    NEXT,
    READS,
    START,
    STATE,
    UNUSED,
    Agreement,
    Evidence,
    Reads,
    Restored,
    Rule,
    judge,
)
from relive.hindsight.verification import Comparison
from relive.hindsight.workers import StateCheck
from relive.model import Verdict
from relive.store.journal import ROOT, ParsedJournal, line_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

RESTORED, ENTRY = "restored", "entry"
Context = tuple[int, int]  # loop, iteration


class KnowsCode(Protocol):
    """What the source of a version says about values and state."""

    def volatile_source(self, name: str) -> str | None: ...
    def reads_directly(self, name: str, path: str) -> bool: ...
    def is_volatile_path(self, path: str) -> bool: ...
    def is_used(self, path: str) -> bool: ...
    @property
    def is_seeded(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CheckedState:
    """A comparison of states, after leaving out what differs each time."""

    check: StateCheck
    position: float
    used: tuple[str, ...]  # paths that differ and that the code uses
    unused: tuple[str, ...]

    @property
    def agreement(self) -> Agreement:
        if self.used:
            return Agreement.DIFFERS
        return Agreement.AGREES if self.check.agreed else Agreement.NOTHING

    @property
    def own_context(self) -> Context:
        """The iteration whose values it tells about; a restored state tells about none that was computed before."""
        return (ROOT, 0) if self.is_start else (self.check.loop, self.check.iteration)

    @property
    def is_start(self) -> bool:
        """Whether the replay goes on from this state, rather than having computed it."""
        return self.check.place in (RESTORED, ENTRY)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentFacts:
    """All that is known about a segment of one rank."""

    journal: ParsedJournal
    comparison: Comparison
    code: KnowsCode
    checks: Sequence[StateCheck] = ()
    unknown: Sequence[str] = ()
    unrestored: Sequence[str] = ()
    is_from_start: bool = True  # nothing was restored
    is_same_machine: bool = True


@dataclass(frozen=True, slots=True)
class Judgement:
    """The rule that decided about some values of a name, how many there are, and the cause as far as it is known."""

    name: str
    rule: Rule
    count: int
    cause: str


@dataclass(frozen=True, slots=True, eq=False)
class SegmentVerdicts:
    """The verdicts on the values of a segment, by their positions in its journal."""

    positions: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    verdicts: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    judgements: tuple[Judgement, ...] = ()

    def of(self, positions: Ints) -> NDArray[np.uint8]:
        """Returns the verdicts on these values; a value that was not judged is unverified."""
        found = np.full(len(positions), int(Verdict.UNVERIFIED), np.uint8)
        if len(self.positions):
            at = np.searchsorted(self.positions, positions).clip(max=len(self.positions) - 1)
            found = np.where(self.positions[at] == positions, self.verdicts[at], found)
        return found.astype(np.uint8)


def judge_segment(facts: SegmentFacts, names: Sequence[str]) -> SegmentVerdicts:
    """Gives every value of these names its verdict."""
    journal = facts.journal
    rows = np.flatnonzero(np.isin(journal.name, [at for at, name in enumerate(journal.names) if name in names]))
    if not len(rows):
        return SegmentVerdicts()
    around = SurroundingEvidence(facts)
    verdicts = np.zeros(len(rows), np.uint8)
    rules: dict[tuple[int, Evidence], Rule] = {}
    counts: dict[tuple[str, Rule], int] = {}
    for at, row in enumerate(rows.tolist()):
        code = int(journal.name[row])
        evidence = around.of(journal.names[code], row)
        rule = rules.get((code, evidence)) or rules.setdefault((code, evidence), judge(evidence))
        verdicts[at] = int(rule.verdict)
        key = journal.names[code], rule
        counts[key] = counts.get(key, 0) + 1
    judgements = tuple(
        Judgement(name, rule, count, around.cause(name, rule)) for (name, rule), count in counts.items()
    )  # fmt: skip
    return SegmentVerdicts(journal.seq[rows].astype(np.int64), verdicts, judgements)


class SurroundingEvidence:
    """Finds the evidence around a value. Everything is ordered by positions in the journal of the segment."""

    def __init__(self, facts: SegmentFacts) -> None:
        self._facts = facts
        self._places = _Places(facts.journal)
        self.states = list(self._checked_states())
        seq = facts.journal.seq
        proofs = [(float(seq[row]), self._context(row), True) for row in facts.comparison.proofs.tolist()]
        wrong = [(float(seq[row]), self._context(row), False) for row in facts.comparison.differing.tolist()]
        lost = [(self._places.end_of(context), context, False) for context in facts.comparison.lost]
        computed = [one for one in self.states if not (one.is_start and one.used)]
        self._values = _Timeline([*proofs, *wrong, *lost], self._places)
        self._states = _Timeline(
            [
                (one.position, one.own_context, one.agreement is Agreement.AGREES)
                for one in computed
                if one.agreement is not Agreement.NOTHING
            ],
            self._places,
        )
        self._starts = sorted((one for one in self.states if one.is_start), key=lambda one: one.position)
        self._start_positions = np.asarray([one.position for one in self._starts])
        self._reads: dict[str, Reads] = {}

    def of(self, name: str, row: int) -> Evidence:
        """Returns the evidence about the value in a row of the journal."""
        position, context = float(self._facts.journal.seq[row]), self._context(row)
        start = self._start_before(position)
        # The state that the replay went on from makes up for earlier differences, if it was compared and agrees.
        since = start.position if start is not None and start.agreement is Agreement.AGREES else -1.0
        next_state, next_value = self._states.after(position), self._values.after(position)
        is_closed = next_state is not None and next_state[1] and next_value is not None
        if is_closed and next_value[0] > next_state[0]:  # type: ignore[index]
            next_value = None
        return Evidence(
            state=self._states.between(since, position, context), values=self._values.between(since, position, context),
            next_state=_agreement(next_state), next_value=_agreement(next_value), reads=self._reads_of(name),
            restored=self._restored(start),
            own_agrees=self._values.agrees_in(context) or self._states.agrees_in(context),
            is_same_machine=self._facts.is_same_machine,
        )  # fmt: skip

    def _context(self, row: int) -> Context:
        return int(self._facts.journal.loop[row]), int(self._facts.journal.iteration[row])

    def _start_before(self, position: float) -> CheckedState | None:
        at = int(np.searchsorted(self._start_positions, position, side="right")) - 1
        return self._starts[at] if at >= 0 else None

    def _restored(self, start: CheckedState | None) -> Restored:
        if start is not None and start.used:
            return Restored.USED_DIFFERS
        if self._facts.unrestored:
            return Restored.INCOMPLETELY
        has_unused = any(one.unused for one in self.states if one is start or not one.is_start)
        return Restored.UNUSED_DIFFERS if has_unused else Restored.EXACTLY

    def _reads_of(self, name: str) -> Reads:
        if name not in self._reads:
            self._reads[name] = self._find_reads(name)
        return self._reads[name]

    def _find_reads(self, name: str) -> Reads:
        facts, code = self._facts, self._facts.code
        if code.volatile_source(name) or any(code.reads_directly(name, path) for path in self.volatile_paths):
            return Reads.UNKNOWN
        if any(code.reads_directly(name, path) for path in facts.unknown):
            # Without a restore it was computed again, like everything else.
            return Reads.MAYBE_UNKNOWN if facts.is_from_start else Reads.UNKNOWN
        return Reads.MAYBE_UNKNOWN if any(code.is_used(path) for path in facts.unknown) else Reads.KNOWN

    def cause(self, name: str, rule: Rule) -> str:
        """Why a rule holds for values of a name: what differs, or what is not known."""
        facts, code = self._facts, self._facts.code
        if rule.ground == START:
            return _describe_start(next(one for one in self._starts if one.used), code)
        if rule.ground == STATE or (rule.ground == NEXT and self._first_difference is not None):
            return _describe_difference(self._first_difference)
        if rule.ground == READS:
            times = [f"reads {_path(path)}, which holds times" for path in self.volatile_paths
                     if code.reads_directly(name, path)]  # fmt: skip
            opaque = [describe_unknown(path) for path in facts.unknown if code.reads_directly(name, path)]
            return code.volatile_source(name) or [*times, *opaque][0]
        if rule.ground == MAYBE:
            return next(describe_unknown(path) for path in facts.unknown if code.is_used(path))
        if rule.ground == INCOMPLETE:
            missing = ", ".join(facts.unrestored[:3])
            return f"{missing} was not there yet when its state was to be restored; ask again with --from-start"
        if rule.ground == UNUSED:
            return f"{next(path for one in self.states for path in one.unused)}, which the code does not use"
        return rule.reason

    @property
    def _first_difference(self) -> CheckedState | None:
        return next((one for one in self.states if one.used and not one.is_start), None)

    @cached_property
    def volatile_paths(self) -> list[str]:
        """State that differs because it holds times and the like."""
        differing = (path for check in self._facts.checks for path in check.differences)
        return [path for path in dict.fromkeys(differing) if self._facts.code.is_volatile_path(path)]

    def _checked_states(self) -> Iterator[CheckedState]:
        position = 0.0
        for check in self._facts.checks:
            if not self._facts.is_same_machine and check.place != RESTORED:
                continue  # another processor rounds differently
            position = max(position, self._places.position_of(check))
            real = [path for path in check.differences if not self._facts.code.is_volatile_path(path)]
            used = [path for path in real if self._facts.code.is_used(path)]
            if check.differing > len(check.differences) and not used:
                used = [f"{check.differing} objects"]  # more than are listed
            yield CheckedState(check, position, tuple(used), tuple(path for path in real if path not in used))


def _path(text: str) -> str:
    return text.partition(": ")[0]


def describe_unknown(text: str) -> str:
    """`tokenizer._tokenizer: tokenizers.Tokenizer is opaque` → what it is, and that no checkpoint holds it."""
    path, _, reason = text.partition(": ")
    kind, is_opaque, _ = reason.partition(" is opaque")
    if is_opaque:
        return f"an object of type {kind} is not in the checkpoints ({path})"
    return f"{path} is not in the checkpoints" + (f" ({reason})" if reason else "")


def _describe_start(state: CheckedState, code: KnowsCode) -> str:
    shown = "; ".join(state.used[:3])
    if state.check.place == RESTORED:
        return f"the checkpoint did not bring back the recorded state: {shown}"
    if not code.is_seeded:
        return f"the random generators were not seeded before relive began: {shown} at the entry of the loop"
    return f"the script was not deterministic before its loop: {shown} at the entry of the loop"


def _describe_difference(state: CheckedState | None) -> str:
    assert state is not None
    check = state.check
    where = f"iteration {check.iteration}" if check.place == "iteration" else "the end of a loop"
    return f"the state differs from the recorded one at {where}: {'; '.join(state.used[:3])}"


def _agreement(event: tuple[float, bool] | None) -> Agreement:
    if event is None:
        return Agreement.NOTHING
    return Agreement.AGREES if event[1] else Agreement.DIFFERS


class _Places:
    """Where the iterations of loops lie in the journal of a segment."""

    def __init__(self, journal: ParsedJournal) -> None:
        self._parents = {
            number: (row.parent, row.parent_iteration) for number, row in journal.loops.items() if number != ROOT
        }
        self._ends: dict[int, dict[int, int]] = {}  # loop → iteration → its last position
        self._first: dict[int, int] = {}  # of loops
        self._last: dict[int, int] = {}
        pairs = zip(journal.loop.tolist(), journal.iteration.tolist(), journal.seq.tolist(), strict=True)
        turns = line_schema.lines_of(line_schema.IterationReplayed, journal.lines)
        for loop, iteration, seq in [*pairs, *((line.loop, line.i, line.seq) for line in turns)]:
            for number, inside in self.around((loop, iteration)):
                ends = self._ends.setdefault(number, {})
                ends[inside] = max(seq, ends.get(inside, seq))
                self._first[number] = min(seq, self._first.get(number, seq))
                self._last[number] = max(seq, self._last.get(number, seq))

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


class _Timeline:
    """Comparisons in the order of their positions; each agrees or differs."""

    def __init__(self, events: list[tuple[float, Context, bool]], places: _Places) -> None:
        events.sort(key=lambda event: event[0])
        self._positions = np.asarray([position for position, _, _ in events])
        self._agree = [agrees for _, _, agrees in events]
        self._agreeing = np.concatenate([[0], np.cumsum(self._agree)]).astype(np.int64)
        self._own: dict[Context, list[int]] = {}  # iteration → how many differ and how many agree inside it
        for _, context, agrees in events:
            for around in places.around(context):
                self._own.setdefault(around, [0, 0])[agrees] += 1

    def between(self, since: float, position: float, context: Context) -> Agreement:
        """The result of all comparisons from a position to another, and of those in an iteration."""
        first = int(np.searchsorted(self._positions, since, side="left"))
        last = int(np.searchsorted(self._positions, position, side="right"))
        own_differ, own_agree = self._own.get(context, (0, 0))
        agree = int(self._agreeing[last] - self._agreeing[first]) if last > first else 0
        if own_differ or max(0, last - first) > agree:
            return Agreement.DIFFERS
        return Agreement.AGREES if agree or own_agree else Agreement.NOTHING

    def agrees_in(self, context: Context) -> bool:
        return bool(self._own.get(context, (0, 0))[1])

    def after(self, position: float) -> tuple[float, bool] | None:
        """The first comparison after a position."""
        at = int(np.searchsorted(self._positions, position, side="right"))
        return (float(self._positions[at]), self._agree[at]) if at < len(self._agree) else None
