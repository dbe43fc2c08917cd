"""What a run's name comes to: how many values, the last, the lowest, the highest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relive.store import kinds
from relive.store.parsing import Parsed


@dataclass(frozen=True, slots=True)
class Summary:
    """One name in one journal. `last` is a number if the last value was one; otherwise `last_text` is its JSON."""

    name: str
    count: int
    last: float | None
    last_text: str | None
    lowest: float | None
    highest: float | None
    last_us: int
    path: tuple[str, ...]

    def numbers(self) -> tuple[Any, ...]:
        return (self.count, self.last, self.last_text, self.lowest, self.highest, self.last_us)


def summarise(journal: Parsed) -> list[Summary]:
    """Summaries of all names of a journal, in the order in which they first came."""
    import numpy as np

    if not len(journal):
        return []
    order = np.argsort(journal.name, kind="stable")
    name = journal.name[order]
    starts = np.flatnonzero(np.r_[True, name[1:] != name[:-1]])
    ends = np.r_[starts[1:], len(name)] - 1
    value = journal.value[order]
    lowest, highest = np.fmin.reduceat(value, starts), np.fmax.reduceat(value, starts)
    found = []
    for start, end, low, high in zip(starts.tolist(), ends.tolist(), lowest.tolist(), highest.tolist(), strict=True):
        row = int(order[end])
        last, text = _value_at(journal, row)
        found.append(
            Summary(
                journal.names[int(name[start])],
                end - start + 1,
                last,
                text,
                _number(low),
                _number(high),
                int(journal.time_us[row]),
                journal.paths[int(journal.path[row])],
            )
        )
    return found


def _integer(exact: int, kind: int) -> int:
    """The slot holds signed bits; those of an unsigned number are read as such."""
    is_unsigned = kind in (kinds.NUMPY_KINDS["uint64"], kinds.TORCH_KINDS["uint64"])
    return exact + (1 << 64) if is_unsigned and exact < 0 else exact


def _number(value: float) -> float | None:
    return None if value != value else value


def _value_at(journal: Parsed, row: int) -> tuple[float | None, str | None]:
    """(number, JSON). SQLite keeps NaN as null, so what a plain REAL can't hold is told by the JSON."""
    kind = int(journal.kind[row])
    if kind == kinds.LINE:
        return None, journal.text[row] if journal.text is not None else None
    if kind == kinds.NONE:
        return None, "null"
    if kind == kinds.BOOL:
        return float(journal.exact[row]), "true" if journal.exact[row] else "false"
    if kind in kinds.INTEGER_KINDS:
        return float(journal.value[row]), str(_integer(int(journal.exact[row]), kind))
    value = float(journal.value[row])
    return _number(value), None if value == value else '{"$float":"nan"}'
