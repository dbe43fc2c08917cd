"""The verdict of each value in a journal: recorded, or as the replay that computed it judged it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.model import Verdict
from relive.store.journal import ParsedJournal, line_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_verdicts(journal: ParsedJournal) -> NDArray[Any]:
    """Returns the verdict of each row. Older journals of replays have one verdict for all their values."""
    import numpy as np

    header = journal.header
    if not isinstance(header, line_schema.ReplayStarted) or not header.number:
        return np.zeros(len(journal), np.uint8)
    given = line_schema.lines_of(line_schema.VerdictGiven, journal.lines)
    found = np.full(len(journal), Verdict.UNVERIFIED if given else Verdict.of(header.verdict or None), np.uint8)
    names = {line.id: line.name for line in line_schema.lines_of(line_schema.NameDefined, journal.lines)}
    codes = {name: code for code, name in enumerate(journal.names)}
    for line in given:
        rows = np.flatnonzero(journal.name == codes.get(names.get(line.name, ""), -1))
        seq = journal.seq[rows]
        starts = np.searchsorted(seq, [first for first, _ in line.slots], side="left").tolist()
        ends = np.searchsorted(seq, [last for _, last in line.slots], side="right").tolist()
        for start, end in zip(starts, ends, strict=True):
            found[rows[start:end]] = Verdict.of(line.verdict)
    return found
