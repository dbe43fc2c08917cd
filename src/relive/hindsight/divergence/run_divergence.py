"""Where two runs parted, rank by rank, with what differed before: the whole answer, as data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from relive.hindsight.divergence.course import Course, Parting, Terms
from relive.hindsight.divergence.divergence_search import find_parting
from relive.hindsight.divergence.run_differences import RunDifferences, differences_of_runs
from relive.hindsight.divergence.run_trace import read_traces, require_known
from relive.model import RunRecord
from relive.store import Home
from relive.store.catalog import Index, find_run

MAX_LISTED = 50  # leaves and names in an answer
IDENTICAL, PARTED, NOTHING = "identical", "parted", "nothing to compare"


@dataclass(slots=True)
class Divergence:
    """The comparison of two runs."""

    one: RunRecord
    other: RunRecord
    courses: dict[int, Course] = field(default_factory=dict)  # by rank
    before: RunDifferences = field(default_factory=RunDifferences)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if any(course.parted for course in self.courses.values()):
            return PARTED
        return NOTHING if all(course.compared.is_nothing for course in self.courses.values()) else IDENTICAL

    @property
    def rank(self) -> int:
        """The rank that parted first; the first rank if none did."""
        parted = {rank: course.parted for rank, course in self.courses.items() if course.parted}
        if not parted:
            return min(self.courses, default=0)
        return min(parted, key=lambda rank: (parted[rank].loop, parted[rank].iteration, rank))

    @property
    def course(self) -> Course:
        """That of the rank that parted first."""
        return self.courses[self.rank] if self.courses else Course()

    def to_json(self) -> dict[str, Any]:
        """Returns everything as plain JSON values."""
        return {
            "verdict": self.verdict,
            "runs": [record.run for record in (self.one, self.other)],
            "rank": self.rank,
            "parted": parting_to_json(self.course.parted),
            "numbers": parting_to_json(self.course.numbers),
            "before": asdict(self.before),
            "compared": asdict(self.course.compared),
            "ranks": {str(rank): course_to_json(course) for rank, course in self.courses.items()},
            "notes": list(dict.fromkeys([*self.notes, *self.course.notes])),
        }


def course_to_json(course: Course) -> dict[str, Any]:
    return {
        "parted": parting_to_json(course.parted), "numbers": parting_to_json(course.numbers),
        "compared": asdict(course.compared), "settings": [asdict(leaf) for leaf in course.settings[:MAX_LISTED]],
        "aside": [asdict(leaf) for leaf in course.aside[:MAX_LISTED]], "only_one": course.only_one[:MAX_LISTED],
        "only_other": course.only_other[:MAX_LISTED], "notes": course.notes,
    }  # fmt: skip


def parting_to_json(parted: Parting | None) -> dict[str, Any] | None:
    if parted is None:
        return None
    plain = {name: value for name, value in asdict(parted).items() if name != "order"}
    return {**plain, "leaves": [asdict(leaf) for leaf in parted.leaves[:MAX_LISTED]],
            "differing": len(parted.leaves)}  # fmt: skip


def diverge_runs(
    home: Home, one: str, other: str, *, ignored: Collection[str] = (), replays: bool = False
) -> Divergence:  # fmt: skip
    """Compares two runs of a home: their state, digests and values at every moment that both have.

    With `replays`, iterations of which nothing is known are replayed where the runs parted.
    """
    index = Index(home)
    entries = index.runs()
    records = find_run(entries, one).record, find_run(entries, other).record
    first, second = (require_known(read_traces(home, record.run), record.run) for record in records)
    ranks = [rank for rank in first if rank in second]
    found = Divergence(*records)
    found.before = differences_of_runs(index, *records, (first[min(first)], second[min(second)]))
    terms = Terms(found.before.args, tuple(ignored))
    found.courses = {rank: find_parting(first[rank], second[rank], terms) for rank in ranks}
    for side, against, record in ((first, second, records[0]), (second, first, records[1])):
        alone = [str(rank) for rank in side if rank not in against]
        if alone:
            found.notes.append(f"ranks {', '.join(alone)} are only in {record.run[:8]} and can't be compared")
    if replays and found.courses and found.course.parted is not None:
        from relive.hindsight.divergence.gap_replay import narrow_by_replay

        rank = found.rank
        narrow_by_replay(home, records, (first[rank], second[rank]), found.courses[rank])
    return found
