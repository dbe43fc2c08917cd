"""The wide table in memory: columns with their nulls, and what numpy and pandas users see of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One value per row. Where `valid` is False the row has none; without `valid` every row has one.

    With `levels`, `values` are positions in it: a run's name is kept once, however many rows the run has.
    In float columns what is missing reads as NaN, so only `valid` tells it from a NaN that was logged.
    """

    values: NDArray[Any]
    valid: Mask | None = None
    levels: NDArray[Any] | None = None

    def take(self, rows: NDArray[Any]) -> Column:
        """The column at these rows: a mask, or row numbers in the wanted order."""
        valid = None if self.valid is None else self.valid[rows]
        return Column(self.values[rows], valid, self.levels)

    def array(self) -> NDArray[Any]:
        """The values as one numpy array, of objects with None where integers or truth values are missing."""
        if self.levels is not None:
            return np.asarray(self.levels[self.values])
        if self.valid is None or self.values.dtype.kind not in "iub":
            return self.values
        objects = self.values.astype(object)
        objects[~self.valid] = None
        return objects


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of one length by name, in order; the first ones, `dims`, say where and when the others were logged."""

    columns: Mapping[str, Column]
    dims: list[str]

    def __len__(self) -> int:
        return next((len(column.values) for column in self.columns.values()), 0)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name].array()

    def take(self, rows: NDArray[Any]) -> Table:
        """These rows of the table: a mask, or row numbers in the wanted order."""
        return Table({name: column.take(rows) for name, column in self.columns.items()}, self.dims)


def present(values: NDArray[Any]) -> Mask:
    """Where an object array holds something; one by one, as an array in it would answer `!= None` for itself."""
    return np.fromiter((value is not None for value in values), dtype=bool, count=len(values))


def to_pandas(table: Table) -> pandas.DataFrame:
    """The table as a DataFrame: integers and truth values with nulls become Int64 and boolean, never floats."""
    import pandas

    series = {name: _series(column) for name, column in table.columns.items()}
    return pandas.DataFrame(series, copy=False)


def to_frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows of plain values as a DataFrame, with every column that any of them has."""
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
    """Only text may be left to pandas: it would turn an object column of numbers into something else."""
    values = column.values if column.valid is None else column.values[column.valid]
    return len(values) > 0 and all(type(value) is str for value in values)
