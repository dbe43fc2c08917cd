"""The evidence about each value of a replayed segment: what was compared before it, in its iteration, and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from relive.checkpoint.graph import DISPLAY, WRITTEN_FILE
from relive.hindsight.evidence.timeline import ENTRY, RESTORED, Context, JournalPlaces, Timeline
from relive.hindsight.verdicts import (
    CHANGED,
    INCOMPLETE,
    MAYBE,
    NEXT,
    OUTSIDE,
    OWN,
    READS,
    START,
    STATE,
    UNUSED,
    Agreement,
    Evidence,
    Files,
    Reads,
    Restored,
    Rule,
    describe_difference,
    describe_start,
    describe_unknown,
    judge,
)
from relive.hindsight.verification import Comparison, shows_address
from relive.hindsight.workers import OutsideRead, StateCheck
from relive.model import Verdict
from relive.store.journal import ROOT, ParsedJournal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_SCALES = (len(Agreement),) * 4 + (len(Restored), 2, 2)  # how many values each part of the evidence has


class KnowsCode(Protocol):
    """What the source of a version says about values and state."""

    def volatile_source(self, name: str) -> str | None: ...
    def reads_directly(self, name: str, path: str) -> bool: ...
    def reads_by_flow(self, name: str, path: str) -> bool: ...
    def reads_files(self, name: str) -> bool: ...
    def is_volatile_path(self, path: str) -> bool: ...
    def is_used(self, path: str) -> bool: ...
    def is_changed_by_statement(self, path: str) -> bool: ...
    def reads_added(self, name: str) -> bool: ...
    @property
    def is_seeded(self) -> bool: ...
    @property
    def may_draw(self) -> bool: ...
    @property
    def has_own_seeds(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CheckedState:
    """A comparison of states, after leaving out what differs each time."""

    check: StateCheck
    position: float
    used: tuple[str, ...]  # paths that differ and that the code uses
    unused: tuple[str, ...]
    own: tuple[str, ...] = ()  # paths that differ, and that the added statements may have changed themselves

    @property
    def agreement(self) -> Agreement:
        if self.used:
            return Agreement.DIFFERS
        if self.own:
            return Agreement.NOTHING
        return Agreement.AGREES if self.check.agreed else Agreement.NOTHING

    def of_entry(self) -> CheckedState:
        """Returns the comparison for values before the loop, which may depend on what the loop does not use."""
        return replace(self, used=self.used + self.unused)

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
    changed: Sequence[str] = ()  # files that the run read, and whose content is another one now
    outside: Sequence[OutsideRead] = ()  # what was read outside of the project and may not be what the run saw
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
    states: tuple[CheckedState, ...] = ()  # that were compared

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
    around = SurroundingEvidence(facts)
    verdicts = np.zeros(len(rows), np.uint8)
    counts: dict[tuple[str, Rule], int] = {}
    for code in np.unique(journal.name[rows]).tolist():
        at, name = np.flatnonzero(journal.name[rows] == code), journal.names[code]
        found, which = around.of(name, rows[at])
        rules = [judge(evidence) for evidence in found]
        verdicts[at] = np.asarray([int(rule.verdict) for rule in rules], np.uint8)[which]
        for rule, count in zip(rules, np.bincount(which, minlength=len(rules)).tolist(), strict=True):
            counts[name, rule] = counts.get((name, rule), 0) + count
    judgements = tuple(
        Judgement(name, rule, count, around.cause(name, rule)) for (name, rule), count in counts.items()
    )  # fmt: skip
    return SegmentVerdicts(journal.seq[rows].astype(np.int64), verdicts, judgements, tuple(around.states))


class SurroundingEvidence:
    """Finds the evidence around a value. Everything is ordered by positions in the journal of the segment."""

    def __init__(self, facts: SegmentFacts) -> None:
        self._facts = facts
        self._displayed = [path for path in facts.unknown if path.endswith(DISPLAY)]  # progress bars and the like
        self._unknown = [path for path in facts.unknown if not path.endswith(DISPLAY)]
        self._places = JournalPlaces(facts.journal)
        self.states = list(self._checked_states())
        proofs = self._events(facts.comparison.proofs, agrees=True)
        wrong = self._events(facts.comparison.differing, agrees=False)
        lost = [(self._places.end_of(context), context, False) for context in facts.comparison.lost]
        self._values = Timeline([*proofs, *wrong, *lost], self._places)
        self._states = self._state_timeline(one for one in self.states if not (one.is_start and one.used))
        # What was restored says nothing about the values before it; what the script computed does.
        self._computed = self._state_timeline(
            one.of_entry() if one.check.place == ENTRY else one for one in self.states if one.check.place != RESTORED
        )
        restores = [one.position for one in self.states if one.check.place == RESTORED]
        self._restores = np.asarray([*sorted(restores), np.inf])
        self._starts = sorted((one for one in self.states if one.is_start), key=lambda one: one.position)
        self._start_positions = np.asarray([one.position for one in self._starts])

    def of(self, name: str, rows: Ints) -> tuple[list[Evidence], Ints]:
        """Returns the different evidence about values of a name, and for each row of the journal which of it counts."""
        journal = self._facts.journal
        position = journal.seq[rows].astype(np.float64)
        context = journal.loop[rows].astype(np.int64) << 32 | journal.iteration[rows]
        start = np.searchsorted(self._start_positions, position, side="right")  # 0: before the first
        # The state that the replay went on from makes up for earlier differences, if it was compared and agrees.
        begins = [one.position if one.agreement is Agreement.AGREES else -1.0 for one in self._starts]
        since = np.asarray([-1.0, *begins])[start]
        next_state, state_at = self._computed.after(position)
        next_value, value_at = self._values.after(position)
        restored_at = self._restores[np.searchsorted(self._restores, position, side="right")]
        next_state[state_at > restored_at] = Agreement.NOTHING
        next_value[value_at > restored_at] = Agreement.NOTHING
        next_value[(next_state == Agreement.AGREES) & (value_at > state_at)] = Agreement.NOTHING
        state, own_state = self._states.between(since, position, context)
        values, own_values = self._values.between(since, position, context)
        restored = np.asarray([self._restored(one) for one in [None, *self._starts]])[start]
        reads = Reads.UNKNOWN if self._shows_address(name) else self._find_reads(name)
        files = self._files_of(name)
        doubted = self._first_doubts if self._facts.code.reads_added(name) else self._doubted_since
        is_outside = position >= doubted[start]
        columns = [state, values, next_state, next_value, restored, own_state | own_values, is_outside]
        key = np.ravel_multi_index([column.astype(np.int64) for column in columns], _SCALES)
        different, which = np.unique(key, return_inverse=True)
        found = [
            Evidence(
                state=Agreement(codes[0]), values=Agreement(codes[1]), next_state=Agreement(codes[2]),
                next_value=Agreement(codes[3]), reads=reads, restored=Restored(codes[4]),
                own_agrees=bool(codes[5]), is_same_machine=self._facts.is_same_machine,
                files=Files.OUTSIDE if codes[6] else files,
                is_seeded=not self._facts.code.has_own_seeds, is_undisturbed=not self._disturbed,
            )
            for codes in np.transpose(np.unravel_index(different, _SCALES)).tolist()
        ]  # fmt: skip
        return found, which.reshape(-1)

    @cached_property
    def _doubted_since(self) -> NDArray[np.float64]:
        """By the start that a value was computed from: the position of the first doubtful read since then.

        A state that agrees shows that what was read before has made no difference.
        """
        since = [0, *(self.states.index(one) + 1 if one.agreement is Agreement.AGREES else 0 for one in self._starts)]
        return self._first_doubts_after(since)

    @cached_property
    def _first_doubts(self) -> NDArray[np.float64]:
        """The same for values that depend on variables of added code, which no recorded state has."""
        return self._first_doubts_after([0] * (len(self._starts) + 1))

    def _first_doubts_after(self, checks: Sequence[int]) -> NDArray[np.float64]:
        return np.asarray([
            min((one.position - 0.5 for one in self._facts.outside if one.checks >= count), default=np.inf)
            for count in checks
        ])  # fmt: skip

    def _state_timeline(self, states: Iterable[CheckedState]) -> Timeline:
        compared = (one for one in states if one.agreement is not Agreement.NOTHING)
        return Timeline(
            [(one.position, one.own_context, one.agreement is Agreement.AGREES) for one in compared], self._places
        )

    def _events(self, rows: Ints, *, agrees: bool) -> list[tuple[float, Context, bool]]:
        """The comparisons of values in rows of the journal: position, context, and the result."""
        journal = self._facts.journal
        contexts = zip(journal.loop[rows].tolist(), journal.iteration[rows].tolist(), strict=True)
        return [
            (float(seq), context, agrees) for seq, context in zip(journal.seq[rows].tolist(), contexts, strict=True)
        ]  # fmt: skip

    def _restored(self, start: CheckedState | None) -> Restored:
        if start is not None and start.used:
            return Restored.USED_DIFFERS
        if self._facts.unrestored:
            return Restored.INCOMPLETELY
        has_unused = any(one.unused for one in self.states if one is start or not one.is_start)
        return Restored.UNUSED_DIFFERS if has_unused else Restored.EXACTLY

    def _files_of(self, name: str) -> Files:
        if not self._facts.changed:
            return Files.UNCHANGED
        return Files.READ if self._facts.code.reads_files(name) else Files.CHANGED

    def _find_reads(self, name: str) -> Reads:
        facts, code = self._facts, self._facts.code
        is_volatile = any(code.reads_directly(name, path) for path in self.volatile_paths)
        if code.volatile_source(name) or is_volatile or self._written_files(name):
            return Reads.UNKNOWN
        if any(code.reads_directly(name, path) for path in self._displayed):
            return Reads.UNKNOWN
        if any(code.reads_directly(name, path) for path in self._unknown):
            # Without a restore it was computed again, like everything else.
            return Reads.MAYBE_UNKNOWN if facts.is_from_start else Reads.UNKNOWN
        if not facts.is_from_start and any(code.reads_by_flow(name, path) for path in self._unknown):
            return Reads.COMPUTED_FROM_UNKNOWN
        return Reads.MAYBE_UNKNOWN if any(code.is_used(path) for path in self._unknown) else Reads.KNOWN

    def _shows_address(self, name: str) -> bool:
        journal = self._facts.journal
        return name in journal.names and shows_address(
            journal, np.flatnonzero(journal.name == journal.names.index(name))
        )

    def _written_files(self, name: str) -> list[str]:
        """Returns open files that are not in the checkpoints, if values of a name may be read from what they wrote."""
        is_read = not self._facts.is_from_start and self._facts.code.reads_files(name)
        return [one for one in self._facts.unknown if is_read and one.endswith(WRITTEN_FILE)]

    def cause(self, name: str, rule: Rule) -> str:
        """Why a rule holds for values of a name: what differs, or what is not known."""
        facts, code = self._facts, self._facts.code
        if rule.ground == START:
            return self._describe_start(next(one for one in self._starts if one.used))
        if rule.ground in (STATE, NEXT) and (first := self._first_difference) is not None:
            return describe_difference(first.used, first.check.iteration if first.check.place == "iteration" else None)
        if rule.ground == NEXT and (entry := self._differing_entry) is not None:
            return self._describe_start(entry)
        if rule.ground == OWN:
            changed = self._disturbed[0].partition(": ")[0]
            remedy = "" if facts.is_from_start else "; ask with --from-start if its values depend on that"
            return f"an added statement itself changes {changed}{remedy}"
        if rule.ground == READS:
            times = [f"reads {path.partition(': ')[0]}, which holds times" for path in self.volatile_paths
                     if code.reads_directly(name, path)]  # fmt: skip
            opaque = [describe_unknown(path) for path in facts.unknown if code.reads_directly(name, path)]
            flowing = (describe_unknown(path) for path in self._unknown if code.reads_by_flow(name, path))
            told = [*times, *opaque, *map(describe_unknown, self._written_files(name))]
            address = "reads an address in memory, as a part of a text" if self._shows_address(name) else None
            return code.volatile_source(name) or address or next(iter(told), None) or next(flowing, rule.reason)
        if rule.ground == MAYBE:
            used = (path for path in self._unknown if code.is_used(path) or code.reads_directly(name, path))
            return next(map(describe_unknown, used), rule.reason)
        if rule.ground == OUTSIDE:
            return facts.outside[0].text
        if rule.ground == CHANGED:
            return f"{facts.changed[0]} since the run"
        if rule.ground == INCOMPLETE:
            missing = ", ".join(facts.unrestored[:3])
            return f"{missing} was not there yet when its state was to be restored; ask again with --from-start"
        if rule.ground == UNUSED:
            return f"{next(path for one in self.states for path in one.unused)}, which the code does not use"
        return rule.reason

    def _describe_start(self, state: CheckedState) -> str:
        is_seeded = self._facts.code.is_seeded or not self._facts.code.may_draw
        return describe_start(state.used, is_restored=state.check.place == RESTORED, is_seeded=is_seeded)

    @property
    def _differing_entry(self) -> CheckedState | None:
        """The entry of the loop, if that is what is compared next with values before it, and differs."""
        return next((one.of_entry() for one in self.states if one.check.place == ENTRY and one.of_entry().used), None)

    @cached_property
    def _disturbed(self) -> list[str]:
        """State that the added statements have changed themselves, as far as the source shows."""
        return [path for one in self.states for path in one.own]

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
            own = () if check.place == RESTORED else tuple(filter(self._facts.code.is_changed_by_statement, used))
            if len(own) < len(used):
                own = ()  # something else differs, too
            unused = tuple(path for path in real if path not in used)
            yield CheckedState(check, position, () if own else tuple(used), unused, own)
