"""Turns DuckDB's errors into messages about the user's own text: where it is wrong, and what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from relive.errors import QueryError
from relive.query.sql.sql_statement import NOWHERE, Mention, SqlStatement, SqlText, error_at, quote

if TYPE_CHECKING:
    import duckdb

_MAX_NAMES = 40
_NO_COLUMN = re.compile(r'does not have a column named "(.*?)"|column "(.*?)" not found|table "(.*?)" not found')


@dataclass(frozen=True, slots=True)
class Advice:
    """Turns the errors of a running statement into a QueryError about the text that the user wrote."""

    statement: SqlStatement
    origin: Callable[[int], int]  # maps a byte of the executed SQL to one of the statement's source
    columns: Callable[[], Collection[str]]  # the columns of the tables that the statement reads
    known: Collection[str] = ()  # further columns that a frame could have

    @contextmanager
    def on_errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: duckdb.Error) -> QueryError:
        details = _error_details(error)
        problem, _, more = str(details.get("exception_message", error)).partition("\n")
        position = int(details.get("position", NOWHERE))
        at = self.origin(position) if position >= 0 else NOWHERE
        missing = _NO_COLUMN.search(problem)
        if missing is None:
            return error_at(self.statement.source, at, problem, remedy=self._remedy(error, details, more))
        name = next(group for group in missing.groups() if group is not None)
        columns = [column for column in self.statement.columns if column.at == at or (at < 0 and name in column.parts)]
        column = columns[0] if columns else Mention((name,), at)
        problem = f"there is no column {quote(column.name)}"
        return error_at(self.statement.source, column.at, problem, remedy=self._column_remedy(column))

    def _remedy(self, error: duckdb.Error, details: dict[str, Any], more: str) -> str:
        import duckdb

        if isinstance(error, duckdb.ConversionException):
            return "use try_cast(… as …), which gives null for values that can't be converted"
        if isinstance(error, duckdb.OutOfMemoryException):
            return "query fewer rows or columns, or group them first"
        if details.get("candidates"):
            return f"did you mean {str(details['candidates']).replace(',', ', ')}?"
        if "alias" in str(error):
            return "give each table a name of its own: from frame('a') as x join frame('b') as y using (run)"
        return more if more.startswith("Either") else f"the columns here are {list_names(self.columns())}"

    def _column_remedy(self, column: Mention) -> str:
        columns = list(self.columns())
        here = f"the columns here are {list_names(columns)}"
        if len(column.parts) > 1 and column.name in columns:
            return f"write it in double quotes: {quote(column.name)}"
        last_part = column.parts[-1]
        near = nearest_name(last_part, columns)
        addable = nearest_name(last_part, self.known)
        if addable is not None and self.statement.frames and (near is None or addable.lower() == last_part.lower()):
            return f"add {addable!r} to the names in frame(…); {here}"
        return f"did you mean {quote(near)}? {here}" if near else here


def unknown_table_error(source: SqlText, table: Mention, tables: Collection[str]) -> QueryError:
    """Returns the error for a table that doesn't exist, with the nearest name as a hint."""
    problem = f"there is no table {quote(table.name)}"
    if re.search(r"[./\\:]", table.parts[-1]):
        problem = f"files can't be read from a query, and {quote(table.name)} is not a table"
    near = nearest_name(table.name, [*tables, "frame"])
    hint = f"did you mean {near}{'(…)' if near == 'frame' else ''}? " if near else ""
    return error_at(source, table.at, problem, remedy=f"{hint}read from frame('name', …) or from {list_names(tables)}")


def nearest_name(name: str, names: Collection[str]) -> str | None:
    """Returns the known name that is most similar, ignoring case; None if none is close."""
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def list_names(names: Collection[str]) -> str:
    """Returns the sorted names as a comma-separated text, cut after the first 40."""
    shown = sorted(names, key=str.lower)
    more = f" and {len(shown) - _MAX_NAMES} more" if len(shown) > _MAX_NAMES else ""
    return (", ".join(shown[:_MAX_NAMES]) or "(none)") + more


def _error_details(error: duckdb.Error) -> dict[str, Any]:
    """Returns the details of a DuckDB error: JSON that follows the name of the error's type."""
    start = str(error).find("{")
    try:
        details = msgspec.json.decode(str(error)[start:]) if start >= 0 else {}
    except msgspec.DecodeError:
        return {}
    return details if isinstance(details, dict) else {}
