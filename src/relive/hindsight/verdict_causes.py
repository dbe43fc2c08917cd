"""Why values are not proven, in sentences: taken from the evidence, and guessed only where that says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from relive.checkpoint.graph import DISPLAY
from relive.hindsight.evidence import SegmentFacts, SegmentVerdicts
from relive.hindsight.verdicts import OUTSIDE, READS, VALUES, describe_unknown
from relive.model import Verdict

_PREDICATES = ("reads ", "draws ")
NOT_SEEDED = "the random generators were not seeded before relive began: call their seed functions first"
NOT_DETERMINISTIC = (
    "it ran from the start, so its checkpoints are not the cause: the script is not deterministic, or something that it"
    " reads has changed"
)
NOT_HELD = "an object that changes while training is not in the checkpoints: name it in checkpointing(…)"
NOT_HELD_OR_SEEDED = (
    "the random generators are not seeded, or an object that changes while training is not in the checkpoints;"
    " --from-start tells which"
)


class CauseFinder:
    """Collects the causes of the verdicts of a run."""

    def __init__(self) -> None:
        self._seen: dict[str, Verdict] = {}  # cause → the worst verdict that it gave
        self._guesses: list[str] = []

    def add(self, facts: SegmentFacts, verdicts: SegmentVerdicts) -> None:
        """Adds what is known about a segment."""
        for one in verdicts.judgements:
            if one.rule.ground != VALUES:
                cause = one.cause
                if one.rule.ground == OUTSIDE:  # `reads /data/best.pt, which has changed since the run began`
                    cause = f"the script {cause}"
                if one.rule.ground == READS:  # `x reads the clock`, `x: an object … is not in the checkpoints`
                    cause = f"{one.name}{' ' if cause.startswith(_PREDICATES) else ': '}{cause}"
                self._seen[cause] = max(one.rule.verdict, self._seen.get(cause, one.rule.verdict))
        if facts.comparison.mismatches:
            self._guesses += [
                describe_unknown(path)
                for path in facts.unknown
                if not path.endswith(DISPLAY) and facts.code.is_used(path)
            ]
            self._guesses += [] if self._guesses else [_guess(facts)]

    def found(self, changes: Sequence[str]) -> list[str]:
        """The causes of unverified and contradicted values, what was seen first; `changes`: since the run."""
        seen = [cause for cause, verdict in self._seen.items() if verdict.is_marked]
        if not self._guesses or any(self._seen[cause] is Verdict.CONTRADICTED for cause in seen):
            return seen
        return [*seen, *(changes or dict.fromkeys(self._guesses))]


def _guess(facts: SegmentFacts) -> str:
    """What may have made recorded values differ if no state was seen to differ."""
    if facts.is_from_start:
        return NOT_DETERMINISTIC if facts.code.is_seeded else NOT_SEEDED
    return NOT_HELD if facts.code.is_seeded or facts.checks else NOT_HELD_OR_SEEDED
