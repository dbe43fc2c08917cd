"""Seals: a checksum in every row of the catalog, so that a changed row is never taken for what was written."""

from __future__ import annotations

import marshal
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import xxhash

from relive.errors import Damaged

Row = tuple[Any, ...]
REMEDY = "ask again: the index is rebuilt from the journals"
_REALS = frozenset(("last", "lowest", "highest", "stall_s", "write_s"))


class IndexDamaged(Damaged):
    """The index is not what was written. It is derived: whoever meets this error rebuilds it from the journals."""

    def __init__(self, what: str) -> None:
        self.what = f"the index is damaged ({what})"
        super().__init__(f"{self.what}; {REMEDY}")


def refuse(what: str) -> NoReturn:
    """Raises `IndexDamaged`."""
    raise IndexDamaged(what)


def seal_row(table: str, values: Sequence[Any]) -> int:
    """Returns the seal of a row: 63 bits, which every database can hold, of its table and its other columns in order.

    Version 2 of marshal gives equal bytes for equal plain values; later ones also store which strings are shared.
    """
    return xxhash.xxh3_64_intdigest(marshal.dumps((table, *values), 2)) >> 1


def seal_rows(table: str, columns: Sequence[str], rows: Iterable[Row]) -> list[Row]:
    """Returns rows as databases give them back, each followed by its seal."""
    reals = [at for at, column in enumerate(columns) if column in _REALS]
    stored = [_as_stored(row, reals) for row in rows] if reals else list(rows)
    return [(*row, seal_row(table, row)) for row in stored]


def _as_stored(row: Row, reals: Sequence[int]) -> Row:
    """Returns a row with floats where columns are of type real. SQLite knows neither NaN nor the sign of zero."""
    values = list(row)
    for at in reals:
        value = values[at]
        values[at] = None if value is None or value != value else float(value) + 0.0
    return tuple(values)


def verify_rows(table: str, rows: Sequence[Row]) -> list[Row]:
    """Returns rows that end in their seal without it; raises `IndexDamaged` if one is not what was written."""
    dumps, digest = marshal.dumps, xxhash.xxh3_64_intdigest
    for row in rows:
        if digest(dumps((table, *row[:-1]), 2)) >> 1 != row[-1]:
            refuse(f"a row of the table {table} was changed")
    return [row[:-1] for row in rows]


def unique(table: str, pairs: Iterable[tuple[int, str]]) -> Mapping[int, str]:
    """Returns id → text of a table whose texts are unique."""
    found = dict(pairs)
    if len(set(found.values())) < len(found):
        refuse(f"the table {table} has two rows with the same text")
    return MappingProxyType(found)


def report_rebuild(damage: IndexDamaged) -> None:
    """Says on stderr that the index was damaged, once, where it is rebuilt."""
    if sys.stderr is not None:
        print(f"{damage.what}; it is rebuilt from the journals", file=sys.stderr)
