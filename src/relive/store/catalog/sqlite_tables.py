"""The catalog in a SQLite file inside the home: the default, which needs no server."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from relive.store.catalog.catalog_tables import SCHEMA, SCHEMA_VERSION, Row

BUSY_TIMEOUT_S = 60.0
DATABASE_FILE = "catalog.sqlite"
T = TypeVar("T")


class SqliteTables:
    """The tables of a home. If the home can't be written, they are in memory and start empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.segments = folder / "segments"
        self._open_file_or_memory()

    def _open_file_or_memory(self) -> None:
        self.writable = True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._db = self._open_or_replace(self._folder / DATABASE_FILE)
        except (OSError, sqlite3.OperationalError):
            self.writable = False
            self._db = self._open(":memory:")

    def _open_or_replace(self, path: Path) -> sqlite3.Connection:
        try:
            return self._open(str(path))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged: the catalog is derived data, so it is replaced
            _remove_database(path)
            return self._open(str(path))

    def _open(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            self._create_schema(db)
        except BaseException:
            db.close()
            raise
        return db

    def _create_schema(self, db: sqlite3.Connection) -> None:
        db.execute("pragma synchronous = normal")
        version = db.execute("pragma user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        with self._lock():
            db.execute("pragma journal_mode = wal")
            if db.execute("pragma user_version").fetchone()[0] not in (0, SCHEMA_VERSION):
                _drop_all_tables(db)
            db.executescript(SCHEMA)
            db.execute(f"pragma user_version = {SCHEMA_VERSION}")

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Holds the lock under which one process at a time updates the index; the others wait and find it updated."""
        if not self.writable:
            yield
            return
        with (self._folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._db.execute(sql, values).fetchall()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._db.execute(sql, values)

    def insert_many(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        self._db.executemany(_insert_sql(table, columns), rows)

    def insert(self, table: str, columns: Sequence[str], row: Row) -> int:
        return int(self._db.execute(_insert_sql(table, columns), row).lastrowid or 0)

    def run_exclusively(self, work: Callable[[], T]) -> T:
        with self._lock():
            return work()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    def clear(self) -> None:
        self._db.close()
        if self.writable:
            _remove_database(self._folder / DATABASE_FILE)
            shutil.rmtree(self.segments, ignore_errors=True)
        self._open_file_or_memory()

    def close(self) -> None:
        self._db.close()

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()


def _insert_sql(table: str, columns: Sequence[str]) -> str:
    return f"insert into {table} ({', '.join(columns)}) values (?{', ?' * (len(columns) - 1)})"


def _remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _drop_all_tables(db: sqlite3.Connection) -> None:
    for (table,) in db.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
    ).fetchall():
        db.execute(f'drop table "{table}"')
