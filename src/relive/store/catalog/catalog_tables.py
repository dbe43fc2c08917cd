"""The schema of the catalog, and the interface of a database that holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

DATABASE_FILE = "catalog.sqlite"
# docs/reference/format.md includes this schema. Raise SCHEMA_VERSION with every change: the catalog is then rebuilt.
SCHEMA_VERSION = 6
SCHEMA = """
create table if not exists runs (
    id           integer primary key autoincrement,  -- never given twice: segments may still hold an old run's rows
    run          text not null unique,
    started_us   integer not null,
    folder_ns    integer not null,   -- mtime of the run's folder when it was read: a new journal changes it
    record       text not null,      -- the whole record as JSON
    details      integer not null,   -- the number of its loops and checkpoints, plus the keys of its summaries
    seal         integer not null    -- here and below: the checksum of the row
);
create table if not exists names (id integer primary key, name text not null unique, seal integer not null);
create table if not exists paths (
    id           integer primary key,
    path         text not null unique,  -- JSON list of loop names
    seal         integer not null
);
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
    verdict      integer not null default 0,  -- the worst: 0 recorded, 1 proven, 2 reproduced, 3 unverified
    seal         integer not null,
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
    seal         integer not null,
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
    seal         integer not null,
    primary key (run_id, rank, process, seq)
) without rowid;
create table if not exists segments (
    id           integer primary key,
    file         text not null,      -- empty if these runs have no points
    rows         integer not null,
    runs         blob not null,      -- the ids of the runs whose points it holds, as little-endian 64-bit integers
    size_bytes   integer not null,   -- of the file
    digest       text not null,      -- of the file: XXH3 with 64 bits, in hexadecimal
    seal         integer not null
);
"""
# The key of a summary as a number. Queries select by these columns, so that a changed row could be left out unseen.
KEY_SUM = "1 + rank * 1000003 + process * 101 + name_id * 7"
T = TypeVar("T")
Row = tuple[Any, ...]


def key_number(rank: int, process: int, name_id: int) -> int:
    """Returns what KEY_SUM is for a row."""
    return 1 + rank * 1_000_003 + process * 101 + name_id * 7


class CatalogTables(Protocol):
    """An open database. Statements are in the SQL that SQLite and PostgreSQL share, with `?` as placeholder."""

    segments: Path  # the folder of the segments that these tables list; it holds no others
    writable: bool  # False if this process may only read the home: nothing can be stored

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Runs a query and returns its rows."""

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Runs a statement that changes or deletes rows."""

    def insert_many(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Inserts any number of rows."""

    def insert(self, table: str, columns: Sequence[str], row: Row) -> int:
        """Inserts a row; returns the id that the database assigned."""

    def run_exclusively(self, work: Callable[[], T]) -> T:
        """Calls `work` under a lock, while no other process updates this catalog; may call it twice after a failure."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commits all changes of the block or none; only inside `run_exclusively`."""

    def clear(self) -> None:
        """Deletes all rows and segments, unless another process has replaced them since they were opened."""

    def close(self) -> None:
        """Closes the connection."""
