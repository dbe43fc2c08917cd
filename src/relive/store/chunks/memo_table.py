"""The table of remembered calls: one SQLite file per home, whose rows name the chunks that hold their results."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from relive.errors import Damaged

FORMAT = 1
SCHEMA = """
create table if not exists entries (
    key text primary key,          -- hash of the function, its code, its arguments and what else was declared
    function text not null,        -- module and name of the function
    kind text not null,            -- 'result' or 'exception'
    form blob not null,            -- the value as JSON; what is big lies in chunks
    seal text not null,            -- XXH3 of key, kind and form: what doesn't fit it is damaged
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
    kept text not null,            -- what became of the outcome: stored, filtered, raised, unstorable
    run text not null,
    time_us integer not null
);
create index if not exists misses_function on misses (function, id);
create table if not exists totals (bytes integer not null);
insert into totals select 0 where not exists (select * from totals);
create trigger if not exists entry_in after insert on entries
    begin update totals set bytes = bytes + new.size_bytes; end;
create trigger if not exists entry_out after delete on entries
    begin update totals set bytes = bytes - old.size_bytes; end;
"""
KEPT_MISSES = 10_000
_BUSY_S = 10.0


class MemoRow(NamedTuple):
    """A remembered call, as it lies on disk."""

    key: str
    function: str
    kind: str
    form: bytes
    seal: str
    chunks: str
    size_bytes: int
    pickled: str
    code: str
    arguments: str
    extra: str
    run: str
    created_us: int
    used_us: int
    took_s: float

    @property
    def is_whole(self) -> bool:
        return self.seal == sealed(self.key, self.kind, self.form)


class MissRow(NamedTuple):
    """A call that had to be computed, and what became of it."""

    key: str
    function: str
    code: str
    arguments: str
    extra: str
    found: str
    kept: str
    run: str
    time_us: int


def sealed(key: str, kind: str, form: object) -> str:
    """What tells that a row is what was written: SQLite itself has no checksums on its pages, nor strict types."""
    content = form if isinstance(form, bytes) else b"?"
    return xxhash.xxh3_64_hexdigest(b"%b %b %b" % (key.encode(), kind.encode(), content))


class _Opened:
    """The connection, for one thread at a time; a file that is no database any more is told as damage."""

    __slots__ = ("_lock", "_memos")

    def __init__(self, memos: MemoTable, lock: threading.RLock) -> None:
        self._memos = memos
        self._lock = lock  # a fork may put another in its place meanwhile

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            return self._memos.connection()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: Any) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.DatabaseError):
            self._memos.tell_damage(error)


_LISTED = ", ".join(MemoRow._fields)
_PLACES = ", ".join("?" * len(MemoRow._fields))
_NOT_NEEDED = frozenset({"chunks", "code", "arguments", "extra"})  # to reuse a result
_ONE = f"""select {", ".join("''" if name in _NOT_NEEDED else name for name in MemoRow._fields)}
from entries where key = ?"""


class MemoTable:
    """The table of a home. Any number of threads and processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = 0
        self._connection: sqlite3.Connection | None = None
        self._left_open: list[sqlite3.Connection] = []  # the parent's, or to a damaged file: closing writes to it
        self._mark = ""
        self._lock = threading.RLock()

    # --- one row ------------------------------------------------------------------------------------------------

    def get(self, key: str) -> MemoRow | None:
        """A row, as far as a hit needs it: without chunks, code, arguments and extra."""
        with self._lock:  # not `_open`, which takes longer: this is on the path of every hit
            try:
                found = self.connection().execute(_ONE, (key,)).fetchone()
            except sqlite3.DatabaseError as error:
                self.tell_damage(error)
                raise
        return MemoRow._make(found) if found else None

    def put(self, row: MemoRow | None, miss: MissRow | None, parts: str, *, durably: bool = False) -> None:
        """Add a row and the note of the miss in one transaction; `durably` waits for the disk, not just the kernel."""
        with self._writing(durably) as connection:
            if row is not None:
                connection.execute(f"insert or replace into entries values ({_PLACES})", row)
            if miss is not None:
                connection.execute("insert or ignore into codes values (?, ?, ?)", (miss.code, miss.function, parts))
                note = connection.execute("insert into misses values (null, ?, ?, ?, ?, ?, ?, ?, ?, ?)", miss)
                if note.lastrowid is not None and note.lastrowid % 1000 == 0:
                    connection.execute("delete from misses where id <= ?", (note.lastrowid - KEPT_MISSES,))

    def touch(self, key: str, now_us: int) -> None:
        with self._open() as connection:
            connection.execute("update entries set used_us = ? where key = ?", (now_us, key))

    def adopt(self, key: str, run: str) -> None:
        """Bind what was computed before its run was opened to that run."""
        with self._writing(False) as connection:
            connection.execute("update entries set run = ? where key = ? and run = ''", (run, key))
            connection.execute("update misses set run = ? where key = ? and run = ''", (run, key))

    def remove(self, keys: Iterable[str]) -> int:
        with self._writing(False) as connection:
            gone = [connection.execute("delete from entries where key = ?", (key,)).rowcount for key in keys]
        return sum(gone)

    def evict(self, most_bytes: int) -> int:
        """Remove the least recently used rows until the rest is within a bound; gives how many went."""
        with self._writing(False) as connection:
            over: int = connection.execute("select bytes from totals").fetchone()[0] - most_bytes
            gone = []
            for key, size in connection.execute("select key, size_bytes from entries order by used_us, rowid"):
                if over <= 0:
                    break
                over -= size
                gone.append((key,))
            connection.executemany("delete from entries where key = ?", gone)
        return len(gone)

    # --- many ---------------------------------------------------------------------------------------------------

    def rows(self, where: str = "1", values: Sequence[Any] = (), *, limit: int = -1) -> list[MemoRow]:
        """Rows for which a condition (ours, never a user's text) is true, newest first."""
        query = f"select {_LISTED} from entries where {where} order by created_us desc, rowid desc limit ?"
        with self._open() as connection:
            return [MemoRow(*found) for found in connection.execute(query, (*values, limit))]

    def misses(self, where: str = "1", values: Sequence[Any] = (), *, limit: int = -1) -> list[MissRow]:
        query = f"select {', '.join(MissRow._fields)} from misses where {where} order by id desc limit ?"
        with self._open() as connection:
            return [MissRow(*found) for found in connection.execute(query, (*values, limit))]

    def functions(self) -> list[str]:
        with self._open() as connection:
            found = connection.execute("select function from entries union select function from misses order by 1")
            return [str(name) for (name,) in found]

    def parts(self, code: str) -> str:
        with self._open() as connection:
            found = connection.execute("select parts from codes where code = ?", (code,)).fetchone()
        return str(found[0]) if found else "{}"

    def trust(self) -> int:
        """Take pickles that were written elsewhere for our own; gives how many there were."""
        with self._open() as connection:
            statement = "update entries set pickled = ? where pickled not in ('', ?)"
            return connection.execute(statement, (self._mark, self._mark)).rowcount

    @property
    def mark(self) -> str:
        """Tells this very file from a copy of it, and this user from another."""
        with self._open():
            return self._mark

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # Python may be ending, and half of what this needs be gone
            self.close()

    # --- inside -------------------------------------------------------------------------------------------------

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

    def _open(self) -> _Opened:
        return _Opened(self, self._lock)

    def tell_damage(self, error: sqlite3.DatabaseError) -> None:
        # Busy, full, read-only are operational: the file is as it was.
        if not isinstance(error, sqlite3.OperationalError):
            raise Damaged(f"{self.path} is damaged ({error}); it is set aside, and begun anew") from error

    def connection(self) -> sqlite3.Connection:
        connection = self._connection
        return connection if connection is not None and self._pid == os.getpid() else self._connect()

    def _connect(self) -> sqlite3.Connection:
        """Open when first needed, and once more in a forked child, which may not use its parent's connection."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, self.path)
        except BaseException:
            connection.close()
            raise
        if self._connection is not None:
            self._left_open.append(self._connection)
        self._connection, self._pid, self._mark = connection, os.getpid(), mark_of(self.path)
        return connection

    def renew(self) -> None:
        """In a forked child: the thread that held the lock is not here to let it go."""
        self._lock = threading.RLock()

    def set_aside(self) -> Path:
        """Move a damaged file out of the way; what it held is computed again."""
        with self._lock:
            if self._connection is not None:
                self._left_open.append(self._connection)
            self._connection = None
            aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
            for suffix in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{self.path}{suffix}", f"{aside}{suffix}")
            return aside


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma recursive_triggers=on")  # so that they hear of a row that is replaced
    connection.execute("pragma synchronous=normal")  # a commit survives the process; a power cut may take the last ones
    version = connection.execute("pragma user_version").fetchone()[0]
    if version > FORMAT:
        raise sqlite3.OperationalError(f"{path} was written by a newer relive; upgrade to use it")
    if version < FORMAT:
        connection.executescript(f"begin immediate;{SCHEMA}pragma user_version={FORMAT};commit")


def mark_of(path: Path) -> str:
    """A copy of a file has another number, and a file of another user another owner."""
    facts = path.stat()
    return f"{os.getuid()}:{facts.st_uid}:{facts.st_ino}"


def memo_chunks(path: Path) -> set[str]:
    """The chunks that remembered calls need; raises `Damaged` when that can't be told."""
    if not path.exists():
        return set()
    memos = MemoTable(path)
    try:
        with memos._open() as connection:
            listed = connection.execute("select chunks from entries where chunks != ''").fetchall()
    except (sqlite3.Error, OSError) as error:
        raise Damaged(f"{path} can't be read ({error}); see to that, or remove the file") from error
    finally:
        memos.close()
    return {name for (names,) in listed for name in names.split()}
