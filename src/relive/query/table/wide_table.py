"""The wide table in memory: columns with nulls, and their conversion to numpy and pandas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relive.model import Verdict

if TYPE_CHECKING:
    import pandas

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One value per row. Rows where `valid` is False have no value; without `valid`, every row has one.

    With `levels`, `values` are positions in it (dictionary encoding): a run's name is stored once, not once per row.
    In float columns a missing value reads as NaN, so only `valid` distinguishes it from a logged NaN.
    """

    values: NDArray[Any]
    valid: Mask | None = None
    levels: NDArray[Any] | None = None

    def take(self, rows: NDArray[Any]) -> Column:
        """Returns the column at these rows, given as a mask or as row numbers in any order."""
        valid = None if self.valid is None else self.valid[rows]
        return Column(self.values[rows], valid, self.levels)

    def array(self) -> NDArray[Any]:
        """Returns the values as a numpy array: of objects with None if integers or booleans are missing."""
        if self.levels is not None:
            return np.asarray(self.levels[self.values])
        if self.valid is None or self.values.dtype.kind not in "iub":
            return self.values
        objects = self.values.astype(object)
        objects[~self.valid] = None
        return objects

    def cells(self, rows: slice = slice(None)) -> list[Any]:
        """Returns the values of some rows as Python's own, None where there is none; times are naive, in UTC."""
        values = self.values[rows]
        if self.levels is not None:
            return list(self.levels[values])
        if values.dtype.kind in "mM":
            values = values.astype(f"{values.dtype.kind}8[us]")  # of finer units, numpy returns plain integers
        cells: list[Any] = values.tolist()
        if self.valid is None:
            return cells
        return [cell if is_valid else None for cell, is_valid in zip(cells, self.valid[rows].tolist(), strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of equal length by name, in order; the first ones, `dims`, identify the context of the values."""

    columns: Mapping[str, Column]
    dims: list[str]
    verdicts: Mapping[str, str] = field(default_factory=dict)  # column of a name → the column of its verdicts
    left_out: Mapping[str, int] = field(default_factory=dict)  # name → contradicted values that are not in the table
    verdict_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # column → verdict → replayed values

    def __len__(self) -> int:
        return next((len(column.values) for column in self.columns.values()), 0)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name].array()

    def take(self, rows: NDArray[Any]) -> Table:
        """Returns these rows of the table, given as a mask or as row numbers in any order."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return replace(self, columns=columns)

    def without(self, names: Collection[str]) -> Table:
        """Returns the table without these columns."""
        columns = {name: column for name, column in self.columns.items() if name not in names}
        verdicts = {name: other for name, other in self.verdicts.items() if name in columns and other in columns}
        return replace(self, columns=columns, verdicts=verdicts)

    def with_verdicts_counted(self) -> Table:
        """Returns the table with its verdicts counted, and without columns of verdicts that mark no value."""
        counts: dict[str, dict[str, int]] = {}
        for name, other in self.verdicts.items():
            found = Counter(self.columns[other].values.tolist())
            counts[name] = {verdict.word: found[verdict.word] for verdict in Verdict if verdict and found[verdict.word]}
        idle = [
            other
            for name, other in self.verdicts.items()
            if not any(Verdict.of(word).is_marked for word in counts[name])
        ]  # fmt: skip
        counts = {name: found for name, found in counts.items() if found}
        return replace(self.without(idle), verdict_counts=counts)


def present(values: NDArray[Any]) -> Mask:
    """Returns where an object array isn't None; element by element, since `!= None` on an array element broadcasts."""
    return np.fromiter((value is not None for value in values), dtype=bool, count=len(values))


def to_pandas(table: Table) -> pandas.DataFrame:
    """Returns the table as a DataFrame: integers and booleans with nulls become Int64 and boolean, never floats."""
    import pandas

    series = {name: _series(column) for name, column in table.columns.items()}
    frame = pandas.DataFrame(series, copy=False)
    if table.verdict_counts:
        frame.attrs["verdicts"] = {name: dict(counts) for name, counts in table.verdict_counts.items()}
    if table.left_out:
        frame.attrs["contradicted"] = dict(table.left_out)
    return frame


def rows_to_pandas(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Returns rows of plain values as a DataFrame, with every column that any row has."""
    import pandas

    frame = pandas.DataFrame.from_records(list(rows))
    for name in frame.columns:
        cells = [row[name] for row in rows if row.get(name) is not None]
        if cells and all(type(cell) is int for cell in cells) and frame[name].dtype.kind != "i":
            frame[name] = pandas.array([row.get(name) for row in rows], dtype="Int64")
    return frame


def _series(column: Column) -> Any:
    import pandas

    values = column.values
    if column.levels is not None:
        return pandas.Series(column.levels).array.take(values)
    if values.dtype == object:
        return pandas.Series(values, dtype=None if _all_text(column) else object)
    if column.valid is None or column.valid.all() or values.dtype.kind not in "iub":
        return values
    masked = pandas.arrays.BooleanArray if values.dtype.kind == "b" else pandas.arrays.IntegerArray
    return masked(values, ~column.valid)


def _all_text(column: Column) -> bool:
    """Whether all values are text; pandas may infer the type of such a column only, it would convert numbers."""
    values = column.values if column.valid is None else column.values[column.valid]
    return len(values) > 0 and all(type(value) is str for value in values)
