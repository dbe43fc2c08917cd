"""What the catalog's tables are, and what a database must be able to do to hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

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
T = TypeVar("T")
Row = tuple[Any, ...]


class CatalogTables(Protocol):
    """An open database. Its SQL is what SQLite and PostgreSQL both understand, with `?` where a value goes."""

    segments: Path  # the folder of the segments that these tables list, and no others
    writable: bool  # False: somebody who may only read the home; nothing can be kept

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """What a query finds."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Change or delete rows."""

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Add rows, however many."""

    def add_one(self, table: str, columns: Sequence[str], row: Row) -> int:
        """Add a row; gives the number that the database gave it."""

    def alone(self, work: Callable[[], T]) -> T:
        """Do something while no other process brings this catalog up to date; it may have to be done twice."""

    def transaction(self) -> AbstractContextManager[None]:
        """All that is changed meanwhile counts, or nothing; only inside `alone`."""

    def clear(self) -> None:
        """Forget everything, the segments as well."""

    def close(self) -> None:
        """Let go of the database."""
