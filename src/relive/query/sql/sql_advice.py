"""What to tell the one whose SQL DuckDB refused: where it is wrong, in their own text, and what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from relive.errors import QueryError
from relive.query.sql.sql_statement import NOWHERE, Mention, SqlStatement, SqlText, pointing, quoted

if TYPE_CHECKING:
    import duckdb

_NAMES_LISTED = 40
_NO_COLUMN = re.compile(r'does not have a column named "(.*?)"|column "(.*?)" not found|table "(.*?)" not found')


@dataclass(frozen=True, slots=True)
class Advice:
    """Iterations the errors of a running statement into a QueryError about the text that the user wrote."""

    statement: SqlStatement
    origin: Callable[[int], int]  # from a byte of the SQL that runs to one of the statement's source
    columns: Callable[[], Collection[str]]  # those of the tables that the statement reads
    known: Collection[str] = ()  # those that a frame could have besides

    @contextmanager
    def on_errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: duckdb.Error) -> QueryError:
        details = _details(error)
        problem, _, more = str(details.get("exception_message", error)).partition("\n")
        position = int(details.get("position", NOWHERE))
        at = self.origin(position) if position >= 0 else NOWHERE
        missing = _NO_COLUMN.search(problem)
        if missing is None:
            return pointing(self.statement.source, at, problem, remedy=self._remedy(error, details, more))
        name = next(group for group in missing.groups() if group is not None)
        columns = [column for column in self.statement.columns if column.at == at or (at < 0 and name in column.parts)]
        column = columns[0] if columns else Mention((name,), at)
        problem = f"there is no column {quoted(column.name)}"
        return pointing(self.statement.source, column.at, problem, remedy=self._column_remedy(column))

    def _remedy(self, error: duckdb.Error, details: dict[str, Any], more: str) -> str:
        import duckdb

        if isinstance(error, duckdb.ConversionException):
            return "try_cast(… as …) gives null for what can't be converted"
        if isinstance(error, duckdb.OutOfMemoryException):
            return "ask for fewer rows or columns, or group them first"
        if details.get("candidates"):
            return f"did you mean {str(details['candidates']).replace(',', ', ')}?"
        if "alias" in str(error):
            return "give each table a name of its own: from frame('a') as x join frame('b') as y using (run)"
        return more if more.startswith("Either") else f"the columns here are {listed(self.columns())}"

    def _column_remedy(self, column: Mention) -> str:
        columns = list(self.columns())
        here = f"the columns here are {listed(columns)}"
        if len(column.parts) > 1 and column.name in columns:
            return f"write it in double quotes: {quoted(column.name)}"
        wanted = column.parts[-1]
        near = nearest(wanted, columns)
        addable = nearest(wanted, self.known)
        if addable is not None and self.statement.frames and (near is None or addable.lower() == wanted.lower()):
            return f"add {addable!r} to the names in frame(…); {here}"
        return f"did you mean {quoted(near)}? {here}" if near else here


def unknown_table(source: SqlText, table: Mention, tables: Collection[str]) -> QueryError:
    problem = f"there is no table {quoted(table.name)}"
    if re.search(r"[./\\:]", table.parts[-1]):
        problem = f"files can't be read from a query, and {quoted(table.name)} is no table"
    near = nearest(table.name, [*tables, "frame"])
    hint = f"did you mean {near}{'(…)' if near == 'frame' else ''}? " if near else ""
    return pointing(source, table.at, problem, remedy=f"{hint}read from frame('name', …) or from {listed(tables)}")


def nearest(name: str, names: Collection[str]) -> str | None:
    """The name that this one was probably meant to be."""
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def listed(names: Collection[str]) -> str:
    shown = sorted(names, key=str.lower)
    more = f" and {len(shown) - _NAMES_LISTED} more" if len(shown) > _NAMES_LISTED else ""
    return (", ".join(shown[:_NAMES_LISTED]) or "(none)") + more


def _details(error: duckdb.Error) -> dict[str, Any]:
    """What DuckDB says about an error, as JSON after the name of the error's kind."""
    start = str(error).find("{")
    try:
        details = msgspec.json.decode(str(error)[start:]) if start >= 0 else {}
    except msgspec.DecodeError:
        return {}
    return details if isinstance(details, dict) else {}
