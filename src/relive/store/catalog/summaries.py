"""Summaries of logged names: count, last values, lowest and highest value, where, and the worst verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from relive.model import Verdict
from relive.store.journal import from_json, line_schema, slot_kinds, to_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from relive.store.journal import ParsedJournal

TAIL_LENGTH = 100  # the number of last values in a summary, so that their mean needs no read of the points
STORED = "count last last_text lowest highest last_us last_at lowest_at highest_at tail verdict".split()


@dataclass(frozen=True, slots=True)
class Summary:
    """One name in one journal. `last` is the last value if it is a number; otherwise `last_text` is its JSON.

    `lowest` and `highest` ignore NaN. `…_at` are the loop columns of the value, as JSON. `tail` holds the last values
    as little-endian doubles, NaN for values that aren't numbers. Contradicted values are left out.
    """

    name: str
    count: int
    last: float | None
    last_text: str | None
    lowest: float | None
    highest: float | None
    last_us: int
    path: tuple[str, ...]
    last_at: str = "{}"
    lowest_at: str | None = None
    highest_at: str | None = None
    tail: bytes = b""
    verdict: int = 0  # the worst of its values, of relive.model.Verdict
    rank: int = 0
    process: int = 0

    def to_row(self) -> tuple[Any, ...]:
        """Returns the columns STORED."""
        return tuple(getattr(self, column) for column in STORED)

    @property
    def exact_last(self) -> float | str | None:
        """The last value with all its bits if it is a number, as an int if it was one; otherwise its JSON."""
        if self.last is None or self.last_text is None:
            return self.last if self.last is not None else self.last_text
        return self.last if self.last_text in ("true", "false") else int(self.last_text)

    def last_values(self) -> list[float]:
        """Returns the last values, at most TAIL, oldest first."""
        import numpy as np

        values: list[float] = np.frombuffer(self.tail, "<f8").tolist()
        return values


def read_summary(name: str, path: str, rank: int, process: int, columns: Sequence[Any]) -> Summary:
    """Returns the summary in a row of the catalog; `columns` are the values of STORED."""
    stored = dict(zip(STORED, columns, strict=True))
    return Summary(name=name, path=tuple(from_json(path)), rank=rank, process=process, **stored)


def merge_summaries(one: Summary, more: Summary) -> Summary:
    """Returns the summary of the values of both, where those of `more` are later; among equal values the first wins."""
    lower = more.lowest is not None and (one.lowest is None or more.lowest < one.lowest)
    higher = more.highest is not None and (one.highest is None or more.highest > one.highest)
    return replace(
        more,
        count=one.count + more.count,
        lowest=more.lowest if lower else one.lowest,
        lowest_at=more.lowest_at if lower else one.lowest_at,
        highest=more.highest if higher else one.highest,
        highest_at=more.highest_at if higher else one.highest_at,
        tail=(one.tail + more.tail)[-8 * TAIL_LENGTH :],
        verdict=max(one.verdict, more.verdict),
    )


def summarise(journal: ParsedJournal) -> list[Summary]:
    """Returns the summaries of all names in a journal, in the order in which the names first occur."""
    import numpy as np

    verdicts = read_verdicts(journal)
    order = np.argsort(journal.name, kind="stable")
    order = order[verdicts[order] < Verdict.CONTRADICTED]
    if not len(order):
        return []
    name = journal.name[order]
    starts = np.flatnonzero(np.r_[True, name[1:] != name[:-1]])
    ends = np.r_[starts[1:], len(name)]
    return [
        replace(_summarise_name(journal, rows), verdict=int(verdicts[rows].max()))
        for rows in (order[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
    ]


def _summarise_name(journal: ParsedJournal, rows: NDArray[Any]) -> Summary:
    """Returns the summary of one name, whose values are in these rows."""
    value, row = journal.value[rows], int(rows[-1])
    last, text = _value_at(journal, row)
    low, high = _extremes(value)
    return Summary(
        name=journal.names[int(journal.name[row])], count=len(rows), last=last, last_text=text,
        lowest=None if low is None else float(value[low]), highest=None if high is None else float(value[high]),
        last_us=int(journal.time_us[row]), path=journal.paths[int(journal.path[row])],
        last_at=_columns_at(journal, row),
        lowest_at=None if low is None else _columns_at(journal, int(rows[low])),
        highest_at=None if high is None else _columns_at(journal, int(rows[high])),
        tail=value[-TAIL_LENGTH:].astype("<f8").tobytes(), rank=journal.journal.rank, process=journal.journal.process,
    )  # fmt: skip


def _extremes(value: NDArray[Any]) -> tuple[int | None, int | None]:
    """Returns the positions of the lowest and the highest number, the first among equals; None without any number."""
    import numpy as np

    if np.isnan(value[0]) and np.isnan(value).all():
        return None, None
    return int(np.nanargmin(value)), int(np.nanargmax(value))


def _columns_at(journal: ParsedJournal, row: int) -> str:
    """Returns the loop columns of a row as JSON; a loop inside one of the same name is numbered, as in tables."""
    path = journal.paths[int(journal.path[row])]
    if not path:
        return "{}"
    items = journal.items[row] if journal.items is not None else None
    json_items = from_json(items) if items is not None else {}
    columns = [name if path[: at + 1].count(name) == 1 else f"{name}_{path[: at + 1].count(name)}" for at, name in
               enumerate(path)]  # fmt: skip
    dims = journal.dims[row].tolist()
    return to_json(
        {column: json_items.get(name, dims[at]) for at, (column, name) in enumerate(zip(columns, path, strict=True))}
    )


def _to_integer(exact: int, kind: int) -> int:
    """Returns the integer in a slot, whose signed bits may stand for an unsigned number."""
    is_unsigned = kind in (slot_kinds.NUMPY_KINDS["uint64"], slot_kinds.TORCH_KINDS["uint64"])
    return exact + (1 << 64) if is_unsigned and exact < 0 else exact


def _value_at(journal: ParsedJournal, row: int) -> tuple[float | None, str | None]:
    """Returns (number, JSON). The JSON is set where a REAL column would lose information; SQLite stores NaN as null."""
    kind = int(journal.kind[row])
    if kind == slot_kinds.LINE:
        return None, journal.text[row] if journal.text is not None else None
    if kind == slot_kinds.NONE:
        return None, "null"
    if kind == slot_kinds.BOOL:
        return float(journal.exact[row]), "true" if journal.exact[row] else "false"
    if kind in slot_kinds.INTEGER_KINDS:
        return float(journal.value[row]), str(_to_integer(int(journal.exact[row]), kind))
    value = float(journal.value[row])
    return (value, None) if value == value else (None, '{"$float":"nan"}')


def read_verdicts(journal: ParsedJournal) -> NDArray[Any]:
    """Returns the verdict of each row. Older journals of replays have one verdict for all their values."""
    import numpy as np

    header = journal.header
    if not isinstance(header, line_schema.ReplayStarted) or not header.number:
        # The first line of a replay's journal may be damaged; nothing says then that its values are right.
        return np.full(len(journal), Verdict.UNVERIFIED if journal.journal.replay else Verdict.RECORDED, np.uint8)
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
