"""The catalog in a PostgreSQL database: one schema per home, reconnecting when a connection breaks."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from relive.errors import ReliveError, StorageUnavailable
from relive.hashing import digest
from relive.store.catalog.catalog_tables import SCHEMA, SCHEMA_VERSION, Row
from relive.store.home import Home

CONNECT_TIMEOUT_S = 10
PATIENCE_S = 5.0  # how long to retry after a connection broke: the database may be restarting
_RETRY_INTERVAL_S = 0.25
_TABLES = "runs, names, paths, summaries, loops, checkpoints, segments"
_REMEDY = "see that it runs and lets you in, or unset the setting `catalog` to use the SQLite file of the home"
# From SQLite's dialect to PostgreSQL's. A hash index takes texts of any length, a b-tree index doesn't.
_DIALECT = (
    (r"integer primary key autoincrement", "bigint generated always as identity primary key"),
    (r"\binteger\b", "bigint"),
    (r"\breal\b", "double precision"),
    (r"\bblob\b", "bytea"),
    (r"\) without rowid;", ");"),
    (r"(\w+)(\s+)text not null unique", r"\1\2text not null, exclude using hash (\1 with =)"),
)
# PostgreSQL allows no NUL in text, SQLite and JSON do.
_ESCAPES = (("\x01", "\x01\x01"), ("\x00", "\x01\x02"))
_ESCAPED = re.compile("\x01([\x01\x02])")
_UNESCAPES = {"\x01": "\x01", "\x02": "\x00"}
T = TypeVar("T")


class _ConnectionBroken(Exception):
    """The connection broke inside `run_exclusively`; all of its work has to be repeated."""


class PostgresTables:
    """The tables of a home in a schema of their own, so that homes can share a database."""

    def __init__(self, url: str, home: Home) -> None:
        _check_url(url)
        self._psycopg = _import_psycopg()
        self._url = url
        self._home = home
        self.schema = "relive_" + digest(home.identity().encode())[:16]
        self.segments = home.index / f"segments-{self.schema}"
        self._exclusive_depth = 0  # inside `run_exclusively`, all of which is repeated when the connection breaks
        self._connect(patience_s=0)
        self._prepare_schema()
        self.writable = os.access(self.segments, os.W_OK)

    # --- the connection -----------------------------------------------------------------------------------------

    def _connect(self, *, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._connection = self._psycopg.connect(
                    self._url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, application_name="relive"
                )
                self._connection.execute(f'set search_path to "{self.schema}"')
                self._pid = os.getpid()
                return
            except self._psycopg.Error as error:
                if time.monotonic() >= deadline or not isinstance(error, self._psycopg.OperationalError):
                    raise self._storage_error(error) from None
            time.sleep(_RETRY_INTERVAL_S)

    def _storage_error(self, error: Exception) -> StorageUnavailable:
        """Returns the error to raise, without the password. Don't chain the original: a traceback would show it."""
        return StorageUnavailable(
            f"the catalog at {_redact_url(self._url)} can't be used: {_redact_error(error, self._url)}; {_REMEDY}"
        )

    def _is_broken(self) -> bool:
        return bool(self._connection.closed) or self._pid != os.getpid()

    def _with_reconnect(self, work: Callable[[], T]) -> T:
        """Calls `work`, which talks to the database; if the connection is broken, reconnects and retries once."""
        if self._pid != os.getpid():  # a forked child must not use its parent's connection
            self._connect(patience_s=0)
        try:
            return work()
        except self._psycopg.Error as error:
            if not self._is_broken():
                raise self._storage_error(error) from None
            if self._exclusive_depth:
                raise _ConnectionBroken from None
        self._connect(patience_s=PATIENCE_S)
        try:
            return work()
        except self._psycopg.Error as error:
            raise self._storage_error(error) from None

    # --- the schema ---------------------------------------------------------------------------------------------

    def _prepare_schema(self) -> None:
        """Creates the tables if they are missing or of another version; empties them if their segments were deleted."""
        if self._version() != SCHEMA_VERSION:
            self.run_exclusively(self._create_schema)
        if not self.segments.is_dir():  # `index/` was deleted, and with it the segments that these tables list
            self.run_exclusively(self._clear_tables)

    def _version(self) -> int | None:
        try:
            return int(self._connection.execute("select version from about").fetchone()[0])
        except (self._psycopg.errors.UndefinedTable, self._psycopg.errors.InvalidSchemaName):
            return None
        except self._psycopg.Error as error:
            raise self._storage_error(error) from None

    def _create_schema(self) -> None:
        if self._version() == SCHEMA_VERSION:  # another process was quicker
            return
        location = f"{socket.gethostname()}:{self._home.path}"
        with self.transaction():
            self.execute(f'drop schema if exists "{self.schema}" cascade')
            self.execute(f'create schema "{self.schema}"')
            self._with_reconnect(lambda: self._connection.execute(_to_postgres_sql(SCHEMA)))
            self.execute("create table about (version bigint not null, home text not null)")
            self.execute("insert into about values (?, ?)", (SCHEMA_VERSION, location))

    def _clear_tables(self) -> None:
        with self.transaction():
            self.execute(f"truncate {_TABLES}")  # identities continue: no id is assigned twice
        shutil.rmtree(self.segments, ignore_errors=True)
        self.segments.mkdir(parents=True)

    # --- statements ---------------------------------------------------------------------------------------------

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        found = self._with_reconnect(
            lambda: self._connection.execute(_to_postgres_placeholders(sql), _escape_row(values)).fetchall()
        )
        return [_unescape_row(row) for row in found]

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._with_reconnect(
            lambda: self._connection.execute(_to_postgres_placeholders(sql), _escape_row(values) or None)
        )

    def insert_many(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        listed = [_escape_row(row) for row in rows]
        if listed:
            self._with_reconnect(lambda: self._copy_rows(f"copy {table} ({', '.join(columns)}) from stdin", listed))

    def _copy_rows(self, statement: str, rows: Sequence[Row]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def insert(self, table: str, columns: Sequence[str], row: Row) -> int:
        marks = ", ".join(["%s"] * len(columns))
        sql = f"insert into {table} ({', '.join(columns)}) values ({marks}) returning id"
        return int(self._with_reconnect(lambda: self._connection.execute(sql, _escape_row(row)).fetchone())[0])

    def run_exclusively(self, work: Callable[[], T]) -> T:
        try:
            return self._run_locked(work)
        except _ConnectionBroken:  # the lock went with the connection, and nothing was committed
            self._connect(patience_s=PATIENCE_S)
        try:
            return self._run_locked(work)
        except _ConnectionBroken:
            message = f"the connection to the catalog at {_redact_url(self._url)} broke twice; {_REMEDY}"
            raise StorageUnavailable(message) from None

    def _run_locked(self, work: Callable[[], T]) -> T:
        """Calls `work` under an advisory lock, which PostgreSQL releases when the connection ends."""
        self._exclusive_depth += 1
        try:
            self.execute("select pg_advisory_lock(hashtextextended(?, 0))", (self.schema,))
            try:
                return work()
            finally:
                if not self._is_broken():
                    self.execute("select pg_advisory_unlock(hashtextextended(?, 0))", (self.schema,))
        finally:
            self._exclusive_depth -= 1

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute("begin")
        try:
            yield
        except BaseException:
            if not self._is_broken():
                self.execute("rollback")
            raise
        self.execute("commit")

    def clear(self) -> None:
        self.run_exclusively(self._clear_tables)

    def close(self) -> None:
        if self._pid == os.getpid():
            self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self.close()


def _import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ReliveError(f"{error}; install what PostgreSQL needs with `pip install 'relive[postgres]'`") from None
    return psycopg


def _to_postgres_sql(schema: str) -> str:
    for ours, theirs in _DIALECT:
        schema = re.sub(ours, theirs, schema)
    return schema


def _to_postgres_placeholders(sql: str) -> str:
    return sql.replace("?", "%s")


def _escape_row(values: Sequence[Any]) -> Row:
    return tuple(_escape(value) if isinstance(value, str) else value for value in values)


def _unescape_row(row: Row) -> Row:
    return tuple(_unescape(value) if isinstance(value, str) else value for value in row)


def _escape(text: str) -> str:
    if "\x00" in text or "\x01" in text:
        for plain, escaped in _ESCAPES:
            text = text.replace(plain, escaped)
    return text


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _UNESCAPES[found[1]], text) if "\x01" in text else text


# --- keeping the password out of messages -----------------------------------------------------------------------------


def _redact_url(url: str) -> str:
    """Returns the address without its password and its options, which may contain one."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}"


def _check_url(url: str) -> None:
    """Rejects an address with a second `@`: part of its password would be parsed, and shown, as the host."""
    if url.count("@") > 1 or ("@" in url and "@" not in urlsplit(url).netloc):
        raise ReliveError(
            "the address in the setting `catalog` can't be read; write special characters in its user and password as"
            " %40 for @, %2F for /, %3A for :, or put the password into PGPASSWORD or ~/.pgpass"
        )


def _redact_error(error: Exception, url: str) -> str:
    """Returns the first line of an error message, with every form of the password removed."""
    line = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    parts = urlsplit(url)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    for secret in (password, unquote(password), *parse_qs(parts.query).get("password", [])):
        line = line.replace(secret, "…") if secret else line
    return line
