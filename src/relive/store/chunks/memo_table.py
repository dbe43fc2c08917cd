"""The table of memoised calls: one SQLite file per home, whose rows name the chunks that hold their results."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from relive.errors import Damaged
from relive.store.chunks.memo_rows import InputsRow, MemoRow, MissRow

FORMAT = 2
SCHEMA = """
create table if not exists entries (
    key text primary key,          -- hash of the function, its code, its arguments and what else was declared
    function text not null,        -- module and name of the function
    kind text not null,            -- 'result' or 'exception'
    form blob not null,            -- the value as JSON; what is big lies in chunks
    seal text not null,            -- checksum of all columns but used_us: what doesn't fit it is damaged
    chunks text not null,          -- names of the chunks that hold the rest, separated by blanks
    size_bytes integer not null,   -- of form and chunks, before compression
    pickled text not null,         -- '' if reading runs no code, else the mark of the file that it was written to
    code text not null,            -- hash of the code; its parts are in codes
    arguments text not null,       -- JSON: {name: [hash, how it looked]}
    extra text not null,           -- hash of what was declared with version= and depends=
    run text not null,             -- the run that computed it, '' if there was none
    created_us integer not null,
    used_us integer not null,      -- to the hour, or exactly where the size is bounded
    took_s real not null           -- how long computing it took
);
create index if not exists entries_function on entries (function, created_us);
create table if not exists codes (
    code text primary key,
    function text not null,
    parts text not null            -- JSON: {function, class or global: hash}
) without rowid;
create table if not exists misses (
    id integer primary key,
    key text not null,
    function text not null,
    code text not null,
    arguments text not null,
    extra text not null,
    found text not null,           -- what the look-up found: absent, expired, unreadable
    kept text not null,            -- what became of the outcome: stored, filtered, raised, unstorable, unsettled
    run text not null,
    time_us integer not null
);
create index if not exists misses_function on misses (function, id);
create table if not exists inputs (
    key text not null,             -- of the call, without what it read
    entry text not null,           -- key of the entry that was computed from these inputs
    inputs blob not null,          -- JSON: [[kind, name, content, stamp], ...]
    seal text not null,            -- checksum of the other columns
    time_us integer not null,
    primary key (key, entry)
) without rowid;
create index if not exists inputs_entry on inputs (entry);
create table if not exists totals (bytes integer not null);
insert into totals select 0 where not exists (select * from totals);
create trigger if not exists entry_in after insert on entries
    begin update totals set bytes = bytes + new.size_bytes; end;
create trigger if not exists entry_out after delete on entries
    begin update totals set bytes = bytes - old.size_bytes; end;
create trigger if not exists inputs_out after delete on entries
    begin delete from inputs where entry = old.key; end;
"""
MAX_MISSES = 10_000
_BUSY_TIMEOUT_S = 10.0


class _LockedConnection:
    """The connection, for one thread at a time; errors of a corrupt file are raised as `Damaged`."""

    __slots__ = ("_lock", "_table")

    def __init__(self, table: MemoTable, lock: threading.RLock) -> None:
        self._table = table
        self._lock = lock  # kept here, since a fork may replace the lock of the table meanwhile

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            return self._table.connection()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: Any) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError):
            self._table.raise_if_damaged(error)


_COLUMNS = ", ".join(MemoRow._fields)
_PLACEHOLDERS = ", ".join("?" * len(MemoRow._fields))
_SELECT_HIT = f"select {_COLUMNS} from entries where key = ?"
_SELECT_INPUTS = "select key, entry, inputs, seal, time_us from inputs where key = ? order by time_us desc limit ?"
MAX_INPUT_SETS = 16  # of one call: versions of the files that it reads


class MemoTable:
    """The table of a home. Any number of threads and processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = 0
        self._connection: sqlite3.Connection | None = None
        # Connections of the parent process or to a damaged file: never closed, since closing writes to the file.
        self._left_open: list[sqlite3.Connection] = []
        self._mark = ""
        self._lock = threading.RLock()

    # --- one row ------------------------------------------------------------------------------------------------

    def get(self, key: str) -> MemoRow | None:
        """Returns the row of a key."""
        with self._lock:  # instead of `_open`, which takes longer: every hit passes here
            try:
                found = self.connection().execute(_SELECT_HIT, (key,)).fetchone()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                self.raise_if_damaged(error)
                raise
        return MemoRow._make(found) if found else None

    def put(self, row: MemoRow | None, miss: MissRow | None, parts: str, *, durably: bool = False) -> None:
        """Adds a row and the miss in one transaction; `durably` waits for the disk, not just the kernel."""
        with self._writing(durably) as connection:
            if row is not None:
                connection.execute(f"insert or replace into entries values ({_PLACEHOLDERS})", row)
            if miss is not None:
                connection.execute("insert or ignore into codes values (?, ?, ?)", (miss.code, miss.function, parts))
                added = connection.execute("insert into misses values (null, ?, ?, ?, ?, ?, ?, ?, ?, ?)", miss)
                if added.lastrowid is not None and added.lastrowid % 1000 == 0:
                    connection.execute("delete from misses where id <= ?", (added.lastrowid - MAX_MISSES,))

    def inputs(self, key: str) -> list[InputsRow]:
        """Returns what the entries of a call have read, newest first."""
        with self._open() as connection:
            return [InputsRow(*found) for found in connection.execute(_SELECT_INPUTS, (key, MAX_INPUT_SETS))]

    def all_inputs(self) -> list[InputsRow]:
        with self._open() as connection:
            return [InputsRow(*found) for found in connection.execute("select * from inputs")]

    def put_inputs(self, key: str, entry: str, inputs: bytes) -> None:
        """Adds what an entry has read, before the entry itself."""
        row = InputsRow(key, entry, inputs, "", time.time_ns() // 1000)
        with self._writing(False) as connection:
            connection.execute("insert or replace into inputs values (?, ?, ?, ?, ?)", row.sealed())

    def touch(self, key: str, now_us: int) -> None:
        """Records when a row was last used."""
        with self._open() as connection:
            connection.execute("update entries set used_us = ? where key = ?", (now_us, key))

    def adopt(self, key: str, run: str) -> None:
        """Assigns a row and its miss to a run that was opened only after they were computed."""
        with self._writing(False) as connection:
            self._change(connection, "key = ? and run = ''", (key,), run=run)
            connection.execute("update misses set run = ? where key = ? and run = ''", (run, key))

    def _change(self, connection: sqlite3.Connection, where: str, values: Sequence[Any], **columns: Any) -> int:
        """Changes columns of intact rows and seals them again; returns how many there were."""
        rows = [MemoRow(*row) for row in connection.execute(f"select {_COLUMNS} from entries where {where}", values)]
        changed = [row._replace(**columns).sealed() for row in rows if row.is_whole]
        statement = "update entries set run = ?, pickled = ?, seal = ? where key = ?"
        connection.executemany(statement, [(row.run, row.pickled, row.seal, row.key) for row in changed])
        return len(changed)

    def remove(self, keys: Iterable[str]) -> int:
        """Removes rows; returns how many there were."""
        with self._writing(False) as connection:
            counts = [connection.execute("delete from entries where key = ?", (key,)).rowcount for key in keys]
        return sum(counts)

    def evict(self, most_bytes: int) -> int:
        """Removes the least recently used rows until the rest is within a bound; returns how many were removed."""
        with self._writing(False) as connection:
            excess: int = connection.execute("select bytes from totals").fetchone()[0] - most_bytes
            evicted = []
            for key, size in connection.execute("select key, size_bytes from entries order by used_us, rowid"):
                if excess <= 0:
                    break
                excess -= size
                evicted.append((key,))
            connection.executemany("delete from entries where key = ?", evicted)
        return len(evicted)

    # --- many rows ---------------------------------------------------------------------------------------------------

    def rows(self, where: str = "1", values: Sequence[Any] = (), *, limit: int = -1) -> list[MemoRow]:
        """Returns the rows that satisfy a condition (never text from a user), newest first."""
        query = f"select {_COLUMNS} from entries where {where} order by created_us desc, rowid desc limit ?"
        with self._open() as connection:
            connection.text_factory = _decode_leniently  # a damaged row must not hide the others
            try:
                return [MemoRow(*found) for found in connection.execute(query, (*values, limit))]
            finally:
                connection.text_factory = str

    def misses(self, where: str = "1", values: Sequence[Any] = (), *, limit: int = -1) -> list[MissRow]:
        """Returns the misses that satisfy a condition (never text from a user), newest first."""
        query = f"select {', '.join(MissRow._fields)} from misses where {where} order by id desc limit ?"
        with self._open() as connection:
            return [MissRow(*found) for found in connection.execute(query, (*values, limit))]

    def functions(self) -> list[str]:
        """Returns the names of all functions that have a row or a miss."""
        with self._open() as connection:
            found = connection.execute("select function from entries union select function from misses order by 1")
            return [str(name) for (name,) in found]

    def parts(self, code: str) -> str:
        """Returns the parts of a code hash as JSON: {function, class or global: hash}."""
        with self._open() as connection:
            found = connection.execute("select parts from codes where code = ?", (code,)).fetchone()
        return str(found[0]) if found else "{}"

    def trust(self) -> int:
        """Accepts pickles that were written to another file or by another user; returns how many there were."""
        with self._writing(False) as connection:
            return self._change(connection, "pickled not in ('', ?)", (self._mark,), pickled=self._mark)

    @property
    def mark(self) -> str:
        """Identifies this file and this user: a copy of the file, or another user, has another mark."""
        with self._open():
            return self._mark

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter shutdown, modules may be gone already
            self.close()

    # --- the connection -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self, durably: bool) -> Iterator[sqlite3.Connection]:
        with self._open() as connection:
            if durably:
                connection.execute("pragma synchronous=full")
            try:
                connection.execute("begin immediate")
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise
            finally:
                if durably:
                    connection.execute("pragma synchronous=normal")

    def _open(self) -> _LockedConnection:
        return _LockedConnection(self, self._lock)

    def raise_if_damaged(self, error: sqlite3.DatabaseError | UnicodeDecodeError) -> None:
        """Raises `Damaged` for a corrupt file. Busy, full or read-only is operational: the file is intact.

        What SQLite says of a corrupt file may hold bytes of it, which are no text.
        """
        if not isinstance(error, sqlite3.OperationalError):
            raise Damaged(f"{self.path} is damaged ({error}); it is set aside and a new one is started") from error

    def connection(self) -> sqlite3.Connection:
        connection = self._connection
        return connection if connection is not None and self._pid == os.getpid() else self._connect()

    def _connect(self) -> sqlite3.Connection:
        """Opens the file; a forked child opens it once more, since it may not use its parent's connection."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, self.path)
        except BaseException:
            connection.close()
            raise
        if self._connection is not None:
            self._left_open.append(self._connection)
        self._connection, self._pid, self._mark = connection, os.getpid(), _file_mark(self.path)
        return connection

    def renew(self) -> None:
        """Replaces the lock in a forked child, where the thread that held it does not exist."""
        self._lock = threading.RLock()

    def set_aside(self) -> Path:
        """Renames a damaged file and returns its new path; the results in it are computed again."""
        with self._lock:
            if self._connection is not None:
                self._left_open.append(self._connection)
            self._connection = None
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
            for suffix in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
            return aside


def _decode_leniently(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma recursive_triggers=on")  # a replaced row must fire the delete trigger
    connection.execute("pragma synchronous=normal")  # commits survive the process; a power cut may undo the last ones
    version = connection.execute("pragma user_version").fetchone()[0]
    if version > FORMAT:
        raise sqlite3.OperationalError(f"{path} was written by a newer relive; upgrade to use it")
    if version < FORMAT:
        connection.executescript(f"begin immediate;{SCHEMA}pragma user_version={FORMAT};commit")


def _file_mark(path: Path) -> str:
    """Returns the user, the owner and the inode: a copy has another inode, another user's file another owner."""
    status = path.stat()
    return f"{os.getuid()}:{status.st_uid}:{status.st_ino}"


def memo_chunks(path: Path) -> set[str]:
    """Returns the chunks that memoised calls need; raises `Damaged` when the table can't be read."""
    if not path.exists():
        return set()
    table = MemoTable(path)
    try:
        with table._open() as connection:
            rows = connection.execute("select chunks from entries where chunks != ''").fetchall()
    except (sqlite3.Error, OSError) as error:
        raise Damaged(f"{path} can't be read ({error}); repair or remove the file") from error
    finally:
        table.close()
    return {name for (names,) in rows for name in names.split()}
