"""Runs untrusted SQL safely: checks what it refers to, and locks the engine in case a check misses something."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from relive.errors import QueryError
from relive.machine import memory_limit_bytes
from relive.query.sql.duckdb_relations import create_view, sql_names
from relive.query.sql.sql_advice import Advice, list_names, unknown_table_error
from relive.query.sql.sql_statement import (
    NOWHERE,
    EditedSql,
    SqlStatement,
    SqlText,
    error_at,
    normalize_blanks,
    parse_statement,
    quote,
)
from relive.query.table import Column, Mask, Table, to_pandas

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection as Connection

Answer = TypeVar("Answer")

TABLE_FUNCTIONS = frozenset("generate_series json_each json_tree range repeat repeat_row unnest".split())
# Functions that access the outside, inspect the engine, run SQL from a string, or only delay the caller.
_FORBIDDEN_FUNCTIONS = re.compile(
    r"read_|parquet_|duckdb_|pragma_|__internal|sniff_|json_(serialize|deserialize|execute)|pg_sleep|sleep"
    r"|(glob|getenv|current_setting|which_secret|query|query_table|write_log|nextval|setval|currval)$|.*_scan$"
)
_NO_BAR = "enable_progress_bar = false"
_LOCKED_SETTINGS = (
    "temp_directory = ''",  # never spill next to the user's files
    "allow_persistent_secrets = false",
    "allow_community_extensions = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "python_enable_replacements = false",  # otherwise SQL could read the caller's variables
    "TimeZone = 'UTC'",
    "errors_as_json = true",  # the only way to get the position of an error
    "enable_external_access = false",  # from here on, the allowed folders can't be changed
    "lock_configuration = true",
)
_SERIALIZE = "select json_serialize_sql(?::varchar, skip_null := true, skip_empty := true, skip_default := true)"
_ONE_SELECT = "only a single SELECT is allowed here; ask one question, and change nothing"
_ONE_CONDITION = "a where clause is one condition on columns; write it like: lr < 0.01 and epoch >= 3"
_WHERE_KEYS = {"type", "cte_map", "select_list", "from_table", "where_clause", "aggregate_handling"}
_WHERE_BARE = "select 1 from rows where "
Aliases = Callable[[], Mapping[str, str]]
_WHERE_IN_PARENTHESES = "select 1 from rows where ("
_ROW_COLUMN = "row#"
_POLL_S = 0.05
_SELECT_ROWS = f'select "{_ROW_COLUMN}" from rows where ('
_CREATE_RESULT = "create temp table result as "
_DOTTED_NAME = re.compile(r'(?:"(?:[^"]|"")*"|\w+)(?:\s*\.\s*(?:"(?:[^"]|"")*"|\w+))*')


def connect(allowed: Sequence[Path]) -> Connection:
    """Opens a locked in-memory engine: SQL can read the files under the allowed folders, and nothing else."""
    import duckdb

    con = duckdb.connect(":memory:")
    if (limit := memory_limit_bytes()) is not None:  # else a query that needs more ends the process, not itself
        con.execute(f"set global memory_limit = '{limit // 2} B'")
        con.execute("set global threads = 1")  # such a process is one of several that share the processors
    folders = ", ".join("'" + str(_resolve(path)).rstrip("/").replace("'", "''") + "/'" for path in allowed)
    # In Jupyter without ipywidgets the bar is off, and setting it to anything is an error.
    has_bar = con.execute("select current_setting('enable_progress_bar')").fetchone() != (False,)
    settings = [f"allowed_directories = [{folders}]", *([_NO_BAR] if has_bar else []), *_LOCKED_SETTINGS]
    for setting in settings:
        try:
            con.execute(f"set global {setting}")  # also for the cursors of this connection
        except duckdb.CatalogException:  # which settings can be global depends on the version
            con.execute(f"set {setting}")
    return con


def is_text(path: Path) -> bool:
    """Whether a path is valid UTF-8, as DuckDB requires."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def _resolve(path: Path) -> Path:
    """Returns the path without symbolic links, unless only the link is valid UTF-8."""
    return real if is_text(real := path.resolve()) else path


@cache
def _shared_engine(_pid: int) -> Connection:
    """Returns the locked engine of this process for parsing and filtering; a fork can't use its parent's threads."""
    return connect([])


@contextmanager
def _cursor() -> Iterator[Connection]:
    """Opens a connection to the shared engine; what it registers is invisible to others."""
    con = _shared_engine(os.getpid()).cursor()
    try:
        yield con
    finally:
        con.close()


def _run_interruptibly(con: Connection, work: Callable[[], Answer]) -> Answer:
    """Does the work in a thread, so that Ctrl-C interrupts it; DuckDB itself doesn't always check for signals."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            # Wait in short steps: a signal that the system delivered to another thread wakes nobody here.
            while not future.done():
                wait([future], timeout=_POLL_S)
        finally:  # whatever a signal handler raised
            while not future.done():  # an interrupt before the query has started is lost
                con.interrupt()
                wait([future], timeout=_POLL_S)
        return future.result()


def _serialize(sql: str) -> str:
    with _cursor() as con:
        return str(con.execute(_SERIALIZE, [sql]).fetchall()[0][0])


def parse(sql: str) -> SqlStatement:
    """Parses a single SELECT; any other text raises a QueryError that points at the problem."""
    return parse_statement(SqlText(normalize_blanks(sql)), _serialize, requirement=_ONE_SELECT)


def check(statement: SqlStatement, tables: Collection[str]) -> None:
    """Raises QueryError if a statement refers to anything but these tables: files, other tables, unsafe functions."""
    source = statement.source
    for mention in statement.others:
        if mention.name == "PARAMETER":
            raise error_at(source, mention.at, "parameters aren't allowed here", remedy="write the value itself")
        if mention.name == "SHOW":
            raise QueryError(f"SHOW isn't allowed here; the tables are {list_names(tables)}")
    for table in statement.tables:
        if table.name not in statement.ctes and table.name not in tables:
            raise unknown_table_error(source, table, tables)
    for function in statement.table_functions:
        if function.name not in TABLE_FUNCTIONS:
            remedy = f"read from frame('name', …) or from {list_names(tables)}"
            raise error_at(source, function.at, f"{function.name}(…) isn't allowed here", remedy=remedy)
    for function in statement.functions:
        if _FORBIDDEN_FUNCTIONS.match(function.parts[-1]):
            raise error_at(source, function.at, f"{function.name}(…) isn't allowed here", remedy="ask without it")


def run(
    sql: str,
    *,
    relations: Mapping[str, Callable[[Connection], None]],
    frame: Callable[[Sequence[str]], Table],
    allowed: Sequence[Path] = (),
    known_columns: Collection[str] = (),
) -> Result:
    """Runs one SELECT over the relations and over frame('name', …) calls; builds only what it mentions.

    A relation is a function that creates the view or table of its name on a connection. `known_columns` are the
    names that a frame could have, used in error messages.
    """
    statement = parse(sql)
    check(statement, relations)
    con = connect(allowed)
    try:
        for name in {table.name: None for table in statement.tables if table.name in relations}:
            relations[name](con)
        edited = _replace_frames(con, statement, frame)
        before, after = _result_wrapper(statement)
        advice = Advice(
            statement, lambda at: edited.origin(at - len(before)), lambda: _list_columns(con), known_columns
        )
        with advice.on_errors():
            _run_interruptibly(con, lambda: con.execute(before + edited.sql + after).fetchall())
        return Result(con)
    except BaseException:
        con.close()
        raise


def _result_wrapper(statement: SqlStatement) -> tuple[str, str]:
    """Returns the SQL before and after a SELECT that stores its result; DuckDB 1 requires parentheses for DESCRIBE."""
    is_describe = any(mention.name == "DESCRIBE" for mention in statement.others)
    return (f"{_CREATE_RESULT}from (", "\n)") if is_describe else (_CREATE_RESULT, "")


def _replace_frames(con: Connection, statement: SqlStatement, frame: Callable[[Sequence[str]], Table]) -> EditedSql:
    """Creates a view for each frame call, and returns the SQL with the views in place of the calls; aliases stay."""
    views = {names: f"frame#{place}" for place, names in enumerate(dict.fromkeys(f.names for f in statement.frames))}
    for names, view in views.items():
        create_view(con, view, frame(names))
    edits = [
        (call.start, call.end, quote(views[call.names]) + ("" if call.alias else " as frame"))
        for call in statement.frames
    ]
    edited = EditedSql.of(statement.source.sql, edits)
    # The edited SQL is checked again, since the spans come from our own scan of the text, not from DuckDB's parser.
    check(parse(edited.sql), {table.name for table in statement.tables} | set(views.values()))
    return edited


def _list_columns(con: Connection) -> list[str]:
    """Returns the columns of the tables a query can read, without the internal parts of frames and relations."""
    internal_part = "table_name like '%#%' and not regexp_matches(table_name, '^frame#[0-9]+$')"
    listing = f"select distinct column_name from duckdb_columns() where not internal and not ({internal_part})"
    return [name for (name,) in con.execute(listing).fetchall()]


class Result:
    """The result of a query, stored in its engine until it is fetched; integers stay integers, times are UTC."""

    def __init__(self, con: Connection) -> None:
        self._con = con
        described = con.execute("describe result").fetchall()
        self.columns: list[str] = [row[0] for row in described]
        self._types: list[str] = [row[1] for row in described]

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        return self._con.execute(self._select()).fetchall()

    def table(self) -> Table:
        arrays = self._con.execute(self._select()).fetchnumpy()
        return Table({name: _column(arrays[f"c{place}"]) for place, name in enumerate(self.columns)}, [])

    def df(self) -> pandas.DataFrame:
        return to_pandas(self.table())

    def close(self) -> None:
        self._con.close()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _select(self) -> str:
        expressions = [
            f"{quote(name)}{self._cast(name, kind)} as c{place}"
            for place, (name, kind) in enumerate(zip(self.columns, self._types, strict=True))
        ]
        return f"select {', '.join(expressions)} from result"

    def _cast(self, name: str, kind: str) -> str:
        if kind == "TIMESTAMP WITH TIME ZONE":
            return "::timestamp"  # in UTC; fetching time zones would need another package
        if kind != "HUGEINT":
            return ""
        # The sum of integers is 128 bits wide; numpy could only hold it as a float.
        fits = f"select count({quote(name)}) = count(try_cast({quote(name)} as bigint)) from result"
        return "::bigint" if self._con.execute(fits).fetchall()[0][0] else ""


def _column(array: Any) -> Column:
    if not isinstance(array, np.ma.MaskedArray):
        return Column(np.asarray(array))
    valid: Mask = ~np.ma.getmaskarray(array)
    values = np.array(array.data)
    if values.dtype.kind in "fmM":
        values[~valid] = np.nan if values.dtype.kind == "f" else "NaT"
    elif values.dtype == object:
        values[~valid] = None
    return Column(values, valid)


def columns_of(where: str) -> list[str]:
    """Returns the columns that a where clause uses, in order; a name with dots may be written without quotes."""
    return list(dict.fromkeys(column.name for column in _parse_condition(where).columns))


def filter_table(table: Table, where: str, aliases: Aliases = dict) -> Table:
    """Returns the rows of the table for which the where clause holds, in their order."""
    return table.take(matching(table, where, aliases))


def matching(table: Table, where: str, aliases: Aliases = dict) -> Mask:
    """Returns for each row of the table whether the where clause holds.

    `aliases` returns other names of columns; it is called if the clause has a name that is not a column.
    """
    statement = _parse_condition(where)
    names = sql_names(table.columns)
    by_lower = {name.lower(): name for name in names.values()}
    replaced = list(_replace_aliases(statement, by_lower, aliases))
    edits = sorted([*_quote_dotted_names(statement, by_lower), *(edit for _, edit in replaced)])
    needed = {part.lower() for column in statement.columns for part in (column.parts[0], column.name)}
    needed |= {column for column, _ in replaced}
    used = {name: table.columns[original] for original, name in names.items() if name.lower() in needed}
    used[_ROW_COLUMN] = Column(np.arange(len(table)))
    edited = EditedSql.of(statement.source.sql, edits)
    sql = edited.sql.replace(_WHERE_IN_PARENTHESES, _SELECT_ROWS, 1)
    shift = len(_SELECT_ROWS) - len(_WHERE_IN_PARENTHESES)
    advice = Advice(statement, lambda at: edited.origin(at - shift), lambda: list(names.values()), ())
    with _cursor() as con, advice.on_errors():
        create_view(con, "rows", Table(used, []))
        rows = _run_interruptibly(con, lambda: con.execute(sql).fetchnumpy()[_ROW_COLUMN])
    mask = np.zeros(len(table), dtype=bool)
    mask[np.asarray(rows, dtype=np.int64)] = True
    return mask


def _parse_condition(where: str) -> SqlStatement:
    """Parses a where clause both bare and in parentheses: only a single complete condition passes both."""
    clause = normalize_blanks(where)
    if not clause.strip():
        raise QueryError(_ONE_CONDITION)
    for source in (SqlText.around(clause, _WHERE_BARE), SqlText.around(clause, _WHERE_IN_PARENTHESES, "\n)")):
        statement = parse_statement(source, _serialize, requirement=_ONE_CONDITION)
        extra = statement.others or statement.frames or statement.table_functions or statement.ctes
        if extra or len(statement.tables) != 1 or not set(statement.node) <= _WHERE_KEYS:
            raise QueryError(_ONE_CONDITION)
    check(statement, {"rows"})
    return statement


def _replace_aliases(
    statement: SqlStatement, by_lower: Mapping[str, str], aliases: Aliases
) -> Iterator[tuple[str, tuple[int, int, str]]]:
    """Yields the edits that put columns in place of their other names, each with the column in lower case."""
    unknown = [one for one in statement.columns if len(one.parts) == 1 and one.name.lower() not in by_lower]
    known = aliases() if unknown else {}
    for column in unknown:
        target = by_lower.get(str(known.get(column.name)).lower())
        word = _DOTTED_NAME.match(statement.source.tail(column.at)) if column.at != NOWHERE else None
        if target is not None and word is not None:
            yield target.lower(), (column.at, column.at + len(word.group().encode()), quote(target))


def _quote_dotted_names(statement: SqlStatement, by_lower: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yields edits that quote dotted names, like optimizer.lr, that are columns of the table."""
    for column in statement.columns:
        known = by_lower.get(column.name.lower())
        if len(column.parts) > 1 and known is not None:
            word = _DOTTED_NAME.match(statement.source.tail(column.at))
            if word is not None:
                yield column.at, column.at + len(word.group().encode()), quote(known)
