"""The catalog in a SQLite file inside the home: the default, which needs no server."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from relive.store.catalog.catalog_tables import DATABASE_FILE, KEY_SUM, SCHEMA, SCHEMA_VERSION, Row
from relive.store.catalog.row_seals import IndexDamaged, refuse, report_rebuild

BUSY_TIMEOUT_S = 60.0
CHECKED_BYTES = 16 << 20  # a file of up to this size is checked when it is opened, which takes about 1 ms for each MB
T = TypeVar("T")


class SqliteTables:
    """The tables of a home. If the home can't be written, they are in memory and start empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / DATABASE_FILE
        self._inode = 0
        self.segments = folder / "segments"
        self._open_file_or_memory()

    def _open_file_or_memory(self) -> None:
        self.writable = True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._db = self._open_or_replace()
            self._inode = self._path.stat().st_ino
        except (OSError, sqlite3.OperationalError):
            self._use_memory()

    def _use_memory(self) -> None:
        self.writable = False
        self._db = self._open(":memory:")

    def _open_or_replace(self) -> sqlite3.Connection:
        self._inode = self._path.stat().st_ino if self._path.exists() else 0
        try:
            return self._open(str(self._path))
        except (sqlite3.DatabaseError, UnicodeDecodeError, IndexDamaged) as error:
            if not _is_damage(error):
                raise
            report_rebuild(_to_index_damage(error))
        self._remove()
        return self._open(str(self._path))

    def _remove(self) -> None:
        """Removes the file and its segments, unless another process has replaced it since it was opened."""
        with self._lock(), contextlib.suppress(FileNotFoundError):
            if self.writable and self._path.stat().st_ino == self._inode:
                _remove_database(self._path)
                shutil.rmtree(self.segments, ignore_errors=True)

    def _open(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            self._create_schema(db)
            if path != ":memory:" and self._path.stat().st_size <= CHECKED_BYTES:
                check_database(db)
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
            if (version := db.execute("pragma user_version").fetchone()[0]) == SCHEMA_VERSION:
                return
            if version:
                _drop_all_tables(db)
            db.executescript(SCHEMA)
            # Another file in this place numbered its runs differently: whoever still has a number of it finds no run.
            first = int.from_bytes(os.urandom(4), "little") >> 2
            db.execute("insert into sqlite_sequence (name, seq) values ('runs', ?)", (first,))
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
        if self.writable and not self._db.in_transaction:
            self._reopen_if_replaced()
        with _reporting_damage(self._path):
            return self._db.execute(sql, values).fetchall()

    def _reopen_if_replaced(self) -> None:
        """Opens the file anew if another process has replaced it: ours was damaged, or of another version."""
        try:
            if self._path.stat().st_ino == self._inode:
                return
        except FileNotFoundError:
            pass
        self._db.close()
        self._open_file_or_memory()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        with _reporting_damage(self._path):
            self._db.execute(sql, values)

    def insert_many(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        with _reporting_damage(self._path):
            self._db.executemany(_insert_sql(table, columns), rows)

    def insert(self, table: str, columns: Sequence[str], row: Row) -> int:
        with _reporting_damage(self._path):
            return int(self._db.execute(_insert_sql(table, columns), row).lastrowid or 0)

    def run_exclusively(self, work: Callable[[], T]) -> T:
        with self._lock():
            return work()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute("begin immediate")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a damaged file may have been rolled back already
                self._db.execute("rollback")
            raise
        self.execute("commit")

    def clear(self) -> None:
        self._db.close()
        try:
            self._remove()
        except OSError:  # it can't be removed, so this process does without it
            self._use_memory()
            return
        self._open_file_or_memory()

    def close(self) -> None:
        self._db.close()

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()


def check_file(path: Path) -> None:
    """Raises `IndexDamaged` if a file of this version is damaged, however large it is; changes nothing."""
    try:
        _check_file(str(path))
    except sqlite3.OperationalError:  # the files beside it can't be made: the disk is full, or can't be written
        _check_file(f"{path.absolute().as_uri()}?immutable=1")


def _check_file(name: str) -> None:
    is_address = name.startswith("file:")
    with contextlib.closing(sqlite3.connect(name, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=is_address)) as db:
        with _reporting_damage():
            version = db.execute("pragma user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            check_database(db)


def check_database(db: sqlite3.Connection) -> None:
    """Raises `IndexDamaged` if the structure of the file is damaged or rows are missing; seals cover the other rows.

    It asks SQLite only: whoever opens and closes the file itself drops the locks that this process has on it.
    """
    with _reporting_damage():
        if db.execute("pragma integrity_check(1)").fetchall() != [("ok",)]:
            refuse(f"the structure of {DATABASE_FILE}")
        schema = "select name, sql from sqlite_master where name not like 'sqlite_%' order by name"
        with contextlib.closing(sqlite3.connect(":memory:")) as blank:
            blank.executescript(SCHEMA)
            if db.execute(schema).fetchall() != blank.execute(schema).fetchall():
                refuse(f"the schema of {DATABASE_FILE}")
        if db.execute(_MISSING_ROWS).fetchone() != (0, 0):
            refuse(f"{DATABASE_FILE} lacks rows")


_MISSING_ROWS = f"""
select (select coalesce(sum(details), 0) from runs) - (select coalesce(sum({KEY_SUM}), 0) from summaries)
         - (select count(*) from loops) - (select count(*) from checkpoints),
       (select count(*) from summaries s
         where not exists (select 1 from names n where n.id = s.name_id)
            or not exists (select 1 from runs r where r.id = s.run_id)
            or not exists (select 1 from paths p where p.id = s.path_id))
"""
# Failures of the system rather than of the content.
_SYSTEM_CODES = frozenset(
    (
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_AUTH,
    )
)  # fmt: skip


def _is_damage(error: Exception, path: Path | None = None) -> bool:
    if not isinstance(error, sqlite3.DatabaseError):
        return isinstance(error, IndexDamaged | UnicodeDecodeError)  # what SQLite says of a file may hold bytes of it
    code = getattr(error, "sqlite_errorcode", 0)  # 0: bytes that are no text
    if code == sqlite3.SQLITE_READONLY and path is not None and os.access(path, os.W_OK):
        return True  # the file says that it is of a format which SQLite only reads
    return code & 0xFF not in _SYSTEM_CODES and not isinstance(error, sqlite3.ProgrammingError)


def _to_index_damage(error: Exception) -> IndexDamaged:
    if isinstance(error, IndexDamaged):
        return error
    return IndexDamaged(f"{DATABASE_FILE}: {error}")


@contextlib.contextmanager
def _reporting_damage(path: Path | None = None) -> Iterator[None]:
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if _is_damage(error, path):
            raise _to_index_damage(error) from error
        raise


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
