"""How strangers' SQL runs without touching anything: what it may call, and an engine locked in case a check fails."""

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
from relive.query.sql import sql_statement as reading
from relive.query.sql.duckdb_relations import feed, sql_names
from relive.query.sql.sql_advice import Advice, listed, unknown_table
from relive.query.sql.sql_statement import Edited, SqlStatement, SqlText, pointing, quoted, with_plain_blanks
from relive.query.table import Column, Mask, Table, to_pandas

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection as Connection

Answer = TypeVar("Answer")

TABLE_FUNCTIONS = frozenset("generate_series json_each json_tree range repeat repeat_row unnest".split())
# Functions that reach outside, look into the engine, run SQL from a string, or only make the caller wait.
_REFUSED = re.compile(
    r"read_|parquet_|duckdb_|pragma_|__internal|sniff_|json_(serialize|deserialize|execute)|pg_sleep|sleep"
    r"|(glob|getenv|current_setting|which_secret|query|query_table|write_log|nextval|setval|currval)$|.*_scan$"
)
_LOCKS = (
    "temp_directory = ''",  # never spill next to the user's files
    "allow_persistent_secrets = false",
    "allow_community_extensions = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "python_enable_replacements = false",  # else SQL could read the caller's variables
    "TimeZone = 'UTC'",
    "errors_as_json = true",  # the only way to get at the position of an error
    "enable_progress_bar = false",
    "enable_external_access = false",  # after this, the allowed folders can't be changed
    "lock_configuration = true",
)
_SERIALIZE = "select json_serialize_sql(?::varchar, skip_null := true, skip_empty := true, skip_default := true)"
_ONE_SELECT = "only a single SELECT is allowed here; ask one question, and change nothing"
_ONE_CONDITION = "a where clause is one condition on columns; write it like: lr < 0.01 and epoch >= 3"
_WHERE_KEYS = {"type", "cte_map", "select_list", "from_table", "where_clause", "aggregate_handling"}
_BARE = "select 1 from rows where "
_WHERE = "select 1 from rows where ("
_ROW = "row#"
_LOOK_EVERY_S = 0.05
_MATCHING = f'select "{_ROW}" from rows where ('
_KEEP = "create temp table result as "
_DOTTED = re.compile(r'(?:"(?:[^"]|"")*"|\w+)(?:\s*\.\s*(?:"(?:[^"]|"")*"|\w+))*')


def connect(allowed: Sequence[Path]) -> Connection:
    """A new in-memory engine, locked: SQL can read the files under the allowed folders, and nothing else."""
    import duckdb

    con = duckdb.connect(":memory:")
    folders = ", ".join("'" + str(_resolved(path)).rstrip("/").replace("'", "''") + "/'" for path in allowed)
    for setting in (f"allowed_directories = [{folders}]", *_LOCKS):
        try:
            con.execute(f"set global {setting}")  # for the cursors of this connection too
        except duckdb.CatalogException:  # which settings can be global differs from version to version
            con.execute(f"set {setting}")
    return con


def is_text(path: Path) -> bool:
    """Can DuckDB be told of this path?"""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def _resolved(path: Path) -> Path:
    """Without links, unless a link is what makes the path one that can be told."""
    return real if is_text(real := path.resolve()) else path


@cache
def _engine(_pid: int) -> Connection:
    """One locked engine per process for parsing and filtering; a forked child must not use its parent's threads."""
    return connect([])


@contextmanager
def _borrowed() -> Iterator[Connection]:
    """A connection of its own to the shared engine: what it registers, nobody else sees."""
    con = _engine(os.getpid()).cursor()
    try:
        yield con
    finally:
        con.close()


def _stoppable(con: Connection, work: Callable[[], Answer]) -> Answer:
    """Does the work in a thread of its own, so that Ctrl-C stops it: DuckDB doesn't always look for it by itself."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            # In short waits: a signal that the system gave to another thread wakes nobody here.
            while not future.done():
                wait([future], timeout=_LOOK_EVERY_S)
        finally:  # whatever the handler of a signal raised
            while not future.done():  # an interrupt that comes before the query has begun is lost
                con.interrupt()
                wait([future], timeout=_LOOK_EVERY_S)
        return future.result()


def _serialize(sql: str) -> str:
    with _borrowed() as con:
        return str(con.execute(_SERIALIZE, [sql]).fetchall()[0][0])


def parse(sql: str) -> SqlStatement:
    """What a single SELECT mentions; any other text is a QueryError that points at the problem."""
    return reading.parse(SqlText(with_plain_blanks(sql)), _serialize, wanted=_ONE_SELECT)


def check(statement: SqlStatement, tables: Collection[str]) -> None:
    """Refuses what isn't a question about these tables: files, other tables, functions that reach outside."""
    source = statement.source
    for mention in statement.others:
        if mention.name == "PARAMETER":
            raise pointing(source, mention.at, "parameters can't be given here", remedy="write the value itself")
        if mention.name == "SHOW":
            raise QueryError(f"SHOW isn't allowed here; the tables are {listed(tables)}")
    for table in statement.tables:
        if table.name not in statement.ctes and table.name not in tables:
            raise unknown_table(source, table, tables)
    for function in statement.table_functions:
        if function.name not in TABLE_FUNCTIONS:
            remedy = f"read from frame('name', …) or from {listed(tables)}"
            raise pointing(source, function.at, f"{function.name}(…) isn't allowed here", remedy=remedy)
    for function in statement.functions:
        if _REFUSED.match(function.parts[-1]):
            raise pointing(source, function.at, f"{function.name}(…) isn't allowed here", remedy="ask without it")


def run(
    sql: str,
    *,
    relations: Mapping[str, Callable[[Connection], None]],
    frame: Callable[[Sequence[str]], Table],
    allowed: Sequence[Path] = (),
    known_columns: Collection[str] = (),
) -> Result:
    """Runs one SELECT over the relations and over frame('name', …) calls; only what it mentions is built.

    A relation makes a view or table of its name on the connection it is given. `known_columns` are the names that
    a frame could have, for the sake of good advice.
    """
    statement = parse(sql)
    check(statement, relations)
    con = connect(allowed)
    try:
        for name in {table.name: None for table in statement.tables if table.name in relations}:
            relations[name](con)
        edited = _with_frames(con, statement, frame)
        before, after = _kept(statement)
        advice = Advice(statement, lambda at: edited.origin(at - len(before)), lambda: _columns(con), known_columns)
        with advice.on_errors():
            _stoppable(con, lambda: con.execute(before + edited.sql + after).fetchall())
        return Result(con)
    except BaseException:
        con.close()
        raise


def _kept(statement: SqlStatement) -> tuple[str, str]:
    """What goes around a SELECT to keep its answer; DuckDB 1 wants DESCRIBE and SUMMARIZE in parentheses."""
    shows = any(mention.name == "DESCRIBE" for mention in statement.others)
    return (f"{_KEEP}from (", "\n)") if shows else (_KEEP, "")


def _with_frames(con: Connection, statement: SqlStatement, frame: Callable[[Sequence[str]], Table]) -> Edited:
    """The SQL with each frame call replaced by a view of its table, which goes by the same alias as before."""
    views = {names: f"frame#{place}" for place, names in enumerate(dict.fromkeys(f.names for f in statement.frames))}
    for names, view in views.items():
        feed(con, view, frame(names))
    edits = [
        (call.start, call.end, quoted(views[call.names]) + ("" if call.alias else " as frame"))
        for call in statement.frames
    ]
    edited = Edited.of(statement.source.sql, edits)
    # What will run is read once more: the spans were found by our own reading of the text.
    check(parse(edited.sql), {table.name for table in statement.tables} | set(views.values()))
    return edited


def _columns(con: Connection) -> list[str]:
    """The columns of what the query can read, without the parts that frames and relations are made of."""
    part = "table_name like '%#%' and not regexp_matches(table_name, '^frame#[0-9]+$')"
    listing = f"select distinct column_name from duckdb_columns() where not internal and not ({part})"
    return [name for (name,) in con.execute(listing).fetchall()]


class Result:
    """The answer to a query. It stays in its engine until it is fetched; integers stay integers, times are UTC."""

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
        shown = [
            f"{quoted(name)}{self._cast(name, kind)} as c{place}"
            for place, (name, kind) in enumerate(zip(self.columns, self._types, strict=True))
        ]
        return f"select {', '.join(shown)} from result"

    def _cast(self, name: str, kind: str) -> str:
        if kind == "TIMESTAMP WITH TIME ZONE":
            return "::timestamp"  # in UTC, and without asking for another package to say so
        if kind != "HUGEINT":
            return ""
        # The sum of integers is 128 bits wide, which numpy can only hold as floats.
        fits = f"select count({quoted(name)}) = count(try_cast({quoted(name)} as bigint)) from result"
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
    """The columns that a where clause needs, in order; a name with dots may be written without quotes."""
    return list(dict.fromkeys(column.name for column in _condition(where).columns))


def filter_table(table: Table, where: str) -> Table:
    """The rows of the table for which the where clause holds, in their order."""
    return table.take(matching(table, where))


def matching(table: Table, where: str) -> Mask:
    """For each row of the table, whether the where clause holds."""
    statement = _condition(where)
    names = sql_names(table.columns)
    by_lower = {name.lower(): name for name in names.values()}
    edits = list(_quoted_dots(statement, by_lower))
    needed = {part.lower() for column in statement.columns for part in (column.parts[0], column.name)}
    used = {name: table.columns[original] for original, name in names.items() if name.lower() in needed}
    used[_ROW] = Column(np.arange(len(table)))
    edited = Edited.of(statement.source.sql, edits)
    sql = edited.sql.replace(_WHERE, _MATCHING, 1)
    shift = len(_MATCHING) - len(_WHERE)
    advice = Advice(statement, lambda at: edited.origin(at - shift), lambda: list(names.values()), ())
    with _borrowed() as con, advice.on_errors():
        feed(con, "rows", Table(used, []))
        rows = _stoppable(con, lambda: con.execute(sql).fetchnumpy()[_ROW])
    mask = np.zeros(len(table), dtype=bool)
    mask[np.asarray(rows, dtype=np.int64)] = True
    return mask


def _condition(where: str) -> SqlStatement:
    """The where clause, parsed as it is and in parentheses: only one whole condition survives both."""
    clause = with_plain_blanks(where)
    if not clause.strip():
        raise QueryError(_ONE_CONDITION)
    for source in (SqlText.around(clause, _BARE), SqlText.around(clause, _WHERE, "\n)")):
        statement = reading.parse(source, _serialize, wanted=_ONE_CONDITION)
        extra = statement.others or statement.frames or statement.table_functions or statement.ctes
        if extra or len(statement.tables) != 1 or not set(statement.node) <= _WHERE_KEYS:
            raise QueryError(_ONE_CONDITION)
    check(statement, {"rows"})
    return statement


def _quoted_dots(statement: SqlStatement, by_lower: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Edits that quote names with dots, like optimizer.lr, where the table has a column of that name."""
    for column in statement.columns:
        known = by_lower.get(column.name.lower())
        if len(column.parts) > 1 and known is not None:
            word = _DOTTED.match(statement.source.tail(column.at))
            if word is not None:
                yield column.at, column.at + len(word.group().encode()), quoted(known)
