"""The four verdicts on replayed values, and how they are written and marked."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Verdict(IntEnum):
    """How far a value can be trusted, the best first. A value that the run logged itself is recorded: it has none."""

    RECORDED = 0
    PROVEN = 1  # all that its statement reads was held or recomputed, and the state agrees with the recorded one
    REPRODUCED = 2  # recorded values around it agree, but it may read state that could not be compared
    UNVERIFIED = 3  # it reads unknown state, a clock, an address or the network, or there was nothing to compare
    CONTRADICTED = 4  # something differed from the record

    @property
    def word(self) -> str:
        """How it is written in journals, tables and messages."""
        return self.name.lower()

    @property
    def is_marked(self) -> bool:
        """Whether tables mark a value with this verdict."""
        return self >= Verdict.UNVERIFIED

    @property
    def mark(self) -> str:
        """The sign behind a value in a printed table; empty for values that need none."""
        return {Verdict.UNVERIFIED: "?", Verdict.CONTRADICTED: "✗"}.get(self, "")

    @classmethod
    def of(cls, word: Any) -> Verdict:
        """Returns the verdict of a word in a journal; older journals have one word for a whole replay."""
        return _OF_WORDS.get(word, cls.UNVERIFIED)


_OF_WORDS: dict[Any, Verdict] = {
    **{verdict.word: verdict for verdict in Verdict},
    "exact": Verdict.REPRODUCED,
    "nothing to compare": Verdict.UNVERIFIED,
}


def count_words(counts: dict[str, int]) -> str:
    """Describes counts by verdict: `4 proven, 2 unverified`; the best come first."""
    known = [(Verdict.of(word), word, count) for word, count in counts.items() if count]
    return ", ".join(f"{count:,} {word}" for _, word, count in sorted(known))
