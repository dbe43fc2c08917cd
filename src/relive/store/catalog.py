"""A SQLite view of every finished run: its record, args, loops and last values. Derived: delete it, it comes back."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

# docs/reference/format.md shows this schema; a change of it raises SCHEMA, and the catalog is made anew.
SCHEMA_VERSION = 3
SCHEMA = """
create table if not exists runs (
    id           integer primary key autoincrement,  -- never given twice: segments may still hold an old run's rows
    run          text not null unique,
    started_us   integer not null,
    folder_ns    integer not null,   -- mtime of the run's folder when it was read: a new journal changes it
    record       text not null,      -- the whole record as JSON
    segment      integer             -- the segment that holds its points; null until one does
);
create index if not exists runs_by_start on runs (started_us);
create table if not exists names (id integer primary key, name text not null unique);
create table if not exists paths (id integer primary key, path text not null unique);  -- JSON list of loop names
create table if not exists summaries (
    run_id       integer not null,
    name_id      integer not null,
    rank         integer not null,
    process      integer not null,
    count        integer not null,
    last         real,               -- null when the last value isn't a number
    last_text    text,               -- its JSON then
    lowest       real,
    highest      real,
    last_us      integer not null,
    path_id      integer not null,   -- the loops it was last logged in
    last_at      text not null,      -- JSON object of the loop columns of the last value
    lowest_at    text,               -- of the lowest
    highest_at   text,               -- of the highest
    tail         blob not null,      -- the last 100 values as little-endian doubles, NaN for what is no number
    primary key (name_id, run_id, rank, process)
) without rowid;
create table if not exists loops (
    run_id       integer not null,
    rank         integer not null,
    process      integer not null,
    loop         integer not null,
    name         text not null,
    parent       integer not null,
    parent_iteration integer not null,
    path         text not null,      -- JSON list of names, outermost first, itself last
    around       text not null,      -- JSON list of the loop columns around it
    begun_us     integer not null,
    ended_us     integer,
    iterations   integer not null,
    primary key (run_id, rank, process, loop)
) without rowid;
create table if not exists checkpoints (
    run_id       integer not null,
    rank         integer not null,
    process      integer not null,
    seq          integer not null,   -- of its line in the journal
    place        text not null,      -- iteration, loop or end
    name         text not null,      -- of the loop
    at           text not null,      -- JSON object of the loop columns it lies in
    iterations   integer not null,   -- of that loop, before it
    manifest     text not null,
    size_bytes   integer not null,
    new_bytes    integer not null,
    time_us      integer not null,
    stall_s      real not null,
    write_s      real not null,
    primary key (run_id, rank, process, seq)
) without rowid;
create table if not exists segments (id integer primary key, file text not null, rows integer not null);
"""
BUSY_S = 60.0


class Catalog:
    """The open catalog of a home. With a home that can't be written it lives in memory and starts empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writable = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.db = self._open_or_replace(folder / "catalog.sqlite")
        except (OSError, sqlite3.OperationalError):
            self.writable = False
            self.db = self._open(":memory:")

    def _open_or_replace(self, path: Path) -> sqlite3.Connection:
        try:
            return self._open(str(path))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged: it is derived, so a new one is as good
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return self._open(str(path))

    def _open(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("pragma synchronous = normal")
        version = db.execute("pragma user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        with self.lock():
            db.execute("pragma journal_mode = wal")
            if db.execute("pragma user_version").fetchone()[0] not in (0, SCHEMA_VERSION):
                _drop_all(db)
            db.executescript(SCHEMA)
            db.execute(f"pragma user_version = {SCHEMA_VERSION}")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process at a time brings the index up to date; the others wait, and find it done."""
        if not self.writable:
            yield
            return
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self.db.execute("begin immediate")
        try:
            yield self.db
        except BaseException:
            self.db.execute("rollback")
            raise
        self.db.execute("commit")

    def known(self) -> dict[str, tuple[int, int]]:
        """run → (id, folder_ns) of every run in the catalog."""
        return {run: (number, ns) for number, run, ns in self.db.execute("select id, run, folder_ns from runs")}

    def name_ids(self, names: Iterable[str]) -> dict[str, int]:
        """Numbers for names, new ones given where needed (inside a transaction)."""
        return self._numbers("names", "name", names)

    def path_ids(self, paths: Iterable[str]) -> dict[str, int]:
        return self._numbers("paths", "path", paths)

    def _numbers(self, table: str, column: str, texts: Iterable[str]) -> dict[str, int]:
        wanted = list(dict.fromkeys(texts))
        find = f"select id from {table} where {column} = ?"
        self.db.executemany(f"insert or ignore into {table} ({column}) values (?)", [(text,) for text in wanted])
        return {text: self.db.execute(find, (text,)).fetchone()[0] for text in wanted}

    def forget(self, run_ids: Iterable[int]) -> None:
        """Drop runs that are no longer in the home (inside a transaction)."""
        rows = [(number,) for number in run_ids]
        for table, column in (("runs", "id"), ("summaries", "run_id"), ("loops", "run_id"), ("checkpoints", "run_id")):
            self.db.executemany(f"delete from {table} where {column} = ?", rows)

    def close(self) -> None:
        self.db.close()

    def __del__(self) -> None:
        if hasattr(self, "db"):
            self.db.close()


def _drop_all(db: sqlite3.Connection) -> None:
    for (table,) in db.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
    ).fetchall():
        db.execute(f'drop table "{table}"')
