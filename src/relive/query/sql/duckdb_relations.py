"""Exposes a wide table to DuckDB: missing values as NULL, a logged NaN as NaN, objects as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from relive.query.sql.sql_statement import quote
from relive.query.table import Column, Mask, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duckdb import DuckDBPyConnection as Connection

    Arrays = dict[str, NDArray[Any]]

_JSON_ARRAY_ITEMS = 10_000  # a larger array is represented by its type and shape
_HUGEINT = 1 << 127
_CONTAINERS = (list, tuple, set, frozenset, dict, np.ndarray)


def create_view(con: Connection, name: str, table: Table) -> None:
    """Creates a view of the table on this connection. Nothing is copied: DuckDB scans the columns a query needs."""
    arrays: Arrays = {}
    names = sql_names(table.columns)
    expressions = [
        f"{_expression(column, f'c{place}', arrays)} as {quote(names[column_name])}"
        for place, (column_name, column) in enumerate(table.columns.items())
    ]
    source = quote(f"{name}#arrays")
    con.register(f"{name}#arrays", arrays)
    con.execute(
        f"create or replace temp view {quote(name)} as select {', '.join(expressions)} from {source}"
    ).fetchall()


def sql_names(columns: Iterable[str]) -> dict[str, str]:
    """Returns the SQL name of each column; SQL is case-insensitive, so of `Loss` and `loss` the second is `loss_2`."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for column in columns:
        candidates = (column or "_" if nth == 1 else f"{column}_{nth}" for nth in range(1, 1 << 20))
        names[column] = next(name for name in candidates if name.lower() not in taken)
        taken.add(names[column].lower())
    return names


def _expression(column: Column, name: str, arrays: Arrays) -> str:
    """Adds the arrays of a column to `arrays`, and returns the SQL expression that combines them.

    Nulls and NaN are passed as separate columns: DuckDB versions differ in how they read masked arrays and NaN.
    """
    valid = column.valid
    if column.levels is not None:
        arrays[name], expression = column.array(), f"{name}::varchar"
    elif column.values.dtype == object:
        valid = np.ones(len(column.values), dtype=bool) if valid is None else valid
        arrays[name], sql_type = _to_sql_values(column.values, valid)
        expression = f"{name}::{sql_type}"
    else:
        arrays[name], expression = column.values, _number_expression(column, name, arrays)
    if valid is None or valid.all():
        return expression
    arrays[f"{name}_ok"] = valid
    return f"case when {name}_ok then {expression} end"


def _number_expression(column: Column, name: str, arrays: Arrays) -> str:
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


def _to_sql_values(values: NDArray[Any], valid: Mask) -> tuple[NDArray[Any], str]:
    """Converts objects to a SQL type: numbers if all are numbers, JSON if some are containers, else text."""
    present = values[valid]
    types = {type(value) for value in present}
    if types == {int} and all(-_HUGEINT <= value < _HUGEINT for value in present):
        return _fill(values, valid, [str(value) for value in present]), "hugeint"
    if types and all(issubclass(one, bool | int | float | np.bool_ | np.integer | np.floating) for one in types):
        return _fill(values, valid, [float(value) for value in present]).astype(np.float64), "double"
    if any(issubclass(one, _CONTAINERS) or hasattr(one, "to_dict") for one in types):
        return _fill(values, valid, [_json(value) for value in present]), "json"
    return _fill(values, valid, [_text(value) for value in present]), "varchar"


def _fill(values: NDArray[Any], valid: Mask, present: list[Any]) -> NDArray[Any]:
    out = np.full(len(values), None, dtype=object)
    out[valid] = np.fromiter(present, dtype=object, count=len(present))
    return out


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    """Converts a value to what JSON can represent; NaN and infinities become null, unknown types their text."""
    if isinstance(value, np.ndarray):
        is_large = value.size > _JSON_ARRAY_ITEMS
        return {"dtype": str(value.dtype), "shape": value.shape} if is_large else _plain(value.tolist())
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
