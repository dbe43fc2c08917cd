"""How a wide table is shown to DuckDB: what is missing as NULL, a logged NaN as NaN, any object as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from relive.query.sql.sql_statement import quoted
from relive.query.table import Column, Mask, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duckdb import DuckDBPyConnection as Connection

    Arrays = dict[str, NDArray[Any]]

_JSON_ARRAY_ITEMS = 10_000  # a bigger array is shown as its type and shape
_HUGEINT = 1 << 127
_CONTAINERS = (list, tuple, set, frozenset, dict, np.ndarray)


def feed(con: Connection, name: str, table: Table) -> None:
    """Makes the table a view of this connection. Nothing is copied: DuckDB scans the columns a query needs."""
    arrays: Arrays = {}
    names = sql_names(table.columns)
    shown = [
        f"{_expression(column, f'c{place}', arrays)} as {quoted(names[column_name])}"
        for place, (column_name, column) in enumerate(table.columns.items())
    ]
    source = quoted(f"{name}#arrays")
    con.register(f"{name}#arrays", arrays)
    con.execute(f"create or replace temp view {quoted(name)} as select {', '.join(shown)} from {source}").fetchall()


def sql_names(columns: Iterable[str]) -> dict[str, str]:
    """What each column is called in SQL, which doesn't tell `Loss` from `loss`: the second one is `loss_2`."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for column in columns:
        candidates = (column or "_" if nth == 1 else f"{column}_{nth}" for nth in range(1, 1 << 20))
        names[column] = next(name for name in candidates if name.lower() not in taken)
        taken.add(names[column].lower())
    return names


def _expression(column: Column, name: str, arrays: Arrays) -> str:
    """Adds the arrays that hold the column, and gives the SQL that puts it together again.

    Nulls and NaN have columns of their own: how DuckDB reads masked arrays and NaN differs from version to version.
    """
    valid = column.valid
    if column.levels is not None:
        arrays[name], shown = column.array(), f"{name}::varchar"
    elif column.values.dtype == object:
        valid = np.ones(len(column.values), dtype=bool) if valid is None else valid
        arrays[name], sql_type = _readable(column.values, valid)
        shown = f"{name}::{sql_type}"
    else:
        arrays[name], shown = column.values, _number(column, name, arrays)
    if valid is None or valid.all():
        return shown
    arrays[f"{name}_ok"] = valid
    return f"case when {name}_ok then {shown} end"


def _number(column: Column, name: str, arrays: Arrays) -> str:
    values = column.values
    if values.dtype.kind != "f":
        return name
    if values.dtype == np.float16:
        arrays[name] = values = values.astype(np.float32)
    nan = np.isnan(values) if column.valid is None else np.isnan(values) & column.valid
    if not nan.any():
        return name
    arrays[f"{name}_nan"] = nan
    return f"case when {name}_nan then 'nan'::{'float' if values.itemsize == 4 else 'double'} else {name} end"


def _readable(values: NDArray[Any], valid: Mask) -> tuple[NDArray[Any], str]:
    """Objects as something SQL can hold, and its type: numbers if all are, JSON if some hold others, else text."""
    there = values[valid]
    types = {type(value) for value in there}
    if types == {int} and all(-_HUGEINT <= value < _HUGEINT for value in there):
        return _filled(values, valid, [str(value) for value in there]), "hugeint"
    if types and all(issubclass(one, bool | int | float | np.bool_ | np.integer | np.floating) for one in types):
        return _filled(values, valid, [float(value) for value in there]).astype(np.float64), "double"
    if any(issubclass(one, _CONTAINERS) or hasattr(one, "to_dict") for one in types):
        return _filled(values, valid, [_json(value) for value in there]), "json"
    return _filled(values, valid, [_text(value) for value in there]), "varchar"


def _filled(values: NDArray[Any], valid: Mask, there: list[Any]) -> NDArray[Any]:
    out = np.full(len(values), None, dtype=object)
    out[valid] = np.fromiter(there, dtype=object, count=len(there))
    return out


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    """The value as JSON can say it; NaN and infinities become null there, and strange things their text."""
    if isinstance(value, np.ndarray):
        big = value.size > _JSON_ARRAY_ITEMS
        return {"dtype": str(value.dtype), "shape": value.shape} if big else _plain(value.tolist())
    if isinstance(value, dict):
        return {_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else float(value)
    return _plain(value.to_dict("list")) if hasattr(value, "to_dict") else _text(value)
