"""The catalog's tables in a PostgreSQL database, a schema for each home; and how a connection that breaks is mended."""

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

from relive.errors import ReliveError, StorageAway
from relive.hashing import digest
from relive.store.catalog.catalog_tables import SCHEMA, SCHEMA_VERSION, Row
from relive.store.home import Home

CONNECT_S = 10
PATIENCE_S = 5.0  # for a database that is restarting, when a connection broke
_PAUSE_S = 0.25
_TABLES = "runs, names, paths, summaries, loops, checkpoints, segments"
_REMEDY = "see that it runs and lets you in, or unset the setting `catalog` to use the home's own"
# What SQLite calls otherwise. An index of hashes takes texts of any length, one of the texts themselves doesn't.
_DIALECT = (
    (r"integer primary key( autoincrement)?", "bigint generated always as identity primary key"),
    (r"\binteger\b", "bigint"),
    (r"\breal\b", "double precision"),
    (r"\bblob\b", "bytea"),
    (r"\) without rowid;", ");"),
    (r"(\w+)(\s+)text not null unique", r"\1\2text not null, exclude using hash (\1 with =)"),
)
# PostgreSQL has no NUL in texts; SQLite and JSON have.
_ESCAPES = (("\x01", "\x01\x01"), ("\x00", "\x01\x02"))
_ESCAPED = re.compile("\x01([\x01\x02])")
_PLAIN = {"\x01": "\x01", "\x02": "\x00"}
T = TypeVar("T")


class _Broken(Exception):
    """The connection broke while something was changed; it has to be done again from its beginning."""


class PostgresTables:
    """The tables of a home in a schema of their own, so that homes that share a database never meet."""

    def __init__(self, url: str, home: Home) -> None:
        _check(url)
        self._psycopg = _load()
        self._url = url
        self._home = home
        self.schema = "relive_" + digest(home.identity().encode())[:16]
        self.segments = home.index / f"segments-{self.schema}"
        self._depth = 0  # inside `alone`: what breaks there is done again as a whole
        self._connect(patience_s=0)
        self._prepare()
        self.writable = os.access(self.segments, os.W_OK)

    # --- the connection -----------------------------------------------------------------------------------------

    def _connect(self, *, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._connection = self._psycopg.connect(
                    self._url, autocommit=True, connect_timeout=CONNECT_S, application_name="relive"
                )
                self._connection.execute(f'set search_path to "{self.schema}"')
                self._pid = os.getpid()
                return
            except self._psycopg.Error as error:
                if time.monotonic() >= deadline or not isinstance(error, self._psycopg.OperationalError):
                    raise self._away(error) from None
            time.sleep(_PAUSE_S)

    def _away(self, error: Exception) -> StorageAway:
        """What is wrong, without the password; the original isn't chained, since a traceback would show it."""
        return StorageAway(f"the catalog at {shown(self._url)} can't be used: {_told(error, self._url)}; {_REMEDY}")

    def _is_broken(self) -> bool:
        return bool(self._connection.closed) or self._pid != os.getpid()

    def _run(self, work: Callable[[], T]) -> T:
        """Talk to the database; if the connection turns out to be broken, mend it, once."""
        if self._pid != os.getpid():  # a forked child leaves its parent's connection alone
            self._connect(patience_s=0)
        try:
            return work()
        except self._psycopg.Error as error:
            if not self._is_broken():
                raise self._away(error) from None
            if self._depth:
                raise _Broken from None
        self._connect(patience_s=PATIENCE_S)
        try:
            return work()
        except self._psycopg.Error as error:
            raise self._away(error) from None

    # --- the schema ---------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """The tables are there, of this version, and list segments that are there."""
        if self._version() != SCHEMA_VERSION:
            self.alone(self._create)
        if not self.segments.is_dir():  # `index/` was deleted: what these tables list is gone
            self.alone(self._empty)

    def _version(self) -> int | None:
        try:
            return int(self._connection.execute("select version from about").fetchone()[0])
        except (self._psycopg.errors.UndefinedTable, self._psycopg.errors.InvalidSchemaName):
            return None
        except self._psycopg.Error as error:
            raise self._away(error) from None

    def _create(self) -> None:
        if self._version() == SCHEMA_VERSION:  # another process was quicker
            return
        about = f"{socket.gethostname()}:{self._home.path}"
        with self.transaction():
            self.change(f'drop schema if exists "{self.schema}" cascade')
            self.change(f'create schema "{self.schema}"')
            self._run(lambda: self._connection.execute(_translated(SCHEMA)))
            self.change("create table about (version bigint not null, home text not null)")
            self.change("insert into about values (?, ?)", (SCHEMA_VERSION, about))

    def _empty(self) -> None:
        with self.transaction():
            self.change(f"truncate {_TABLES}")  # numbers go on: none is given twice
        shutil.rmtree(self.segments, ignore_errors=True)
        self.segments.mkdir(parents=True)

    # --- the seam -----------------------------------------------------------------------------------------------

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        found = self._run(lambda: self._connection.execute(_marked(sql), _stored(values)).fetchall())
        return [_read(row) for row in found]

    def change(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._run(lambda: self._connection.execute(_marked(sql), _stored(values) or None))

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        listed = [_stored(row) for row in rows]
        if listed:
            self._run(lambda: self._copy(f"copy {table} ({', '.join(columns)}) from stdin", listed))

    def _copy(self, statement: str, rows: Sequence[Row]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def add_one(self, table: str, columns: Sequence[str], row: Row) -> int:
        marks = ", ".join(["%s"] * len(columns))
        sql = f"insert into {table} ({', '.join(columns)}) values ({marks}) returning id"
        return int(self._run(lambda: self._connection.execute(sql, _stored(row)).fetchone())[0])

    def alone(self, work: Callable[[], T]) -> T:
        try:
            return self._alone(work)
        except _Broken:  # so was the lock, and nothing of it counts
            self._connect(patience_s=PATIENCE_S)
        try:
            return self._alone(work)
        except _Broken:
            text = f"the catalog at {shown(self._url)} broke off twice; {_REMEDY}"
            raise StorageAway(text) from None

    def _alone(self, work: Callable[[], T]) -> T:
        """The lock belongs to the connection: it goes with it, whatever becomes of this process."""
        self._depth += 1
        try:
            self.change("select pg_advisory_lock(hashtextextended(?, 0))", (self.schema,))
            try:
                return work()
            finally:
                if not self._is_broken():
                    self.change("select pg_advisory_unlock(hashtextextended(?, 0))", (self.schema,))
        finally:
            self._depth -= 1

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.change("begin")
        try:
            yield
        except BaseException:
            if not self._is_broken():
                self.change("rollback")
            raise
        self.change("commit")

    def clear(self) -> None:
        self.alone(self._empty)

    def close(self) -> None:
        if self._pid == os.getpid():
            self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self.close()


def _load() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ReliveError(f"{error}; install what PostgreSQL needs with `pip install 'relive[postgres]'`") from None
    return psycopg


def _translated(schema: str) -> str:
    for ours, theirs in _DIALECT:
        schema = re.sub(ours, theirs, schema)
    return schema


def _marked(sql: str) -> str:
    return sql.replace("?", "%s")


def _stored(values: Sequence[Any]) -> Row:
    return tuple(_escaped(value) if isinstance(value, str) else value for value in values)


def _read(row: Row) -> Row:
    return tuple(_unescaped(value) if isinstance(value, str) else value for value in row)


def _escaped(text: str) -> str:
    if "\x00" in text or "\x01" in text:
        for plain, escaped in _ESCAPES:
            text = text.replace(plain, escaped)
    return text


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _PLAIN[found[1]], text) if "\x01" in text else text


# --- what may be shown ------------------------------------------------------------------------------------------------


def shown(url: str) -> str:
    """An address without its password and its options, which may hold one."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}"


def _check(url: str) -> None:
    """An `@` too many means a password that would be taken for a host, and shown as one."""
    if url.count("@") > 1 or ("@" in url and "@" not in urlsplit(url).netloc):
        raise ReliveError(
            "the address in the setting `catalog` can't be read; write special characters in its user and password as"
            " %40 for @, %2F for /, %3A for :, or put the password into PGPASSWORD or ~/.pgpass"
        )


def _told(error: Exception, url: str) -> str:
    """The first line of an error, without the password in any form in which it may repeat it."""
    line = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    parts = urlsplit(url)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    for secret in (password, unquote(password), *parse_qs(parts.query).get("password", [])):
        line = line.replace(secret, "…") if secret else line
    return line
