"""A SQLite cache of file digests. Derived: delete it and it comes back."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_SCHEMA = """
create table if not exists sealed_files (
    path text not null,      -- without symbolic links
    sampled integer not null,
    size_bytes integer not null,
    mtime_ns integer not null,
    inode integer not null,
    digest text not null,
    seal integer not null,   -- of the columns before it
    primary key (path, sampled)
) without rowid
"""
_BUSY_S = 2.0
# A file can change twice within one tick of its timestamp. As in git, files younger than this are not cached.
_RACY_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class FileState:
    """Identifies the content of a file by path, size, modification time and inode."""

    path: str
    size_bytes: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: str, descriptor: int) -> FileState:
        facts = os.fstat(descriptor)
        return cls(os.path.realpath(path), facts.st_size, facts.st_mtime_ns, facts.st_ino)

    @property
    def is_racy(self) -> bool:
        return time.time_ns() - self.mtime_ns < _RACY_NS


class FingerprintCache:
    """Digests by file state, in a SQLite file. If it fails, files are just read again."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._broken = False

    def get(self, state: FileState, *, sampled: bool) -> str | None:
        key = "path=? and sampled=? and size_bytes=? and mtime_ns=? and inode=?"
        query = f"select digest, seal from sealed_files where {key}"
        found = self._execute(query, (state.path, sampled, state.size_bytes, state.mtime_ns, state.inode))
        if not found or found[1] != _seal(state, str(found[0]), sampled=sampled):  # a damaged row is not used
            return None
        return str(found[0])

    def put(self, state: FileState, digest: str, *, sampled: bool) -> None:
        if not state.is_racy:
            statement = "insert or replace into sealed_files values (?, ?, ?, ?, ?, ?, ?)"
            row = (state.path, sampled, state.size_bytes, state.mtime_ns, state.inode, digest)
            self._execute(statement, (*row, _seal(state, digest, sampled=sampled)))

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    def __enter__(self) -> FingerprintCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _execute(self, statement: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        with self._lock:
            try:
                connection = self._connect()
                found = connection.execute(statement, values).fetchone() if connection else None
            except (sqlite3.Error, OSError, UnicodeError):  # a path may hold lone surrogates
                return None
        return tuple(found) if found else None

    def _connect(self) -> sqlite3.Connection | None:
        """Connects on first use, and again in a forked child, which may not use the connection of its parent."""
        if self._broken or (self._connection is not None and self._pid == os.getpid()):
            return None if self._broken else self._connection
        self._broken = True  # until everything below has succeeded
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("pragma journal_mode=wal")
            connection.execute("pragma synchronous=off")  # a power cut may lose it: it is derived
            connection.execute(_SCHEMA)
            connection.execute("drop table if exists files")  # of earlier releases: without seals
        except (sqlite3.Error, UnicodeError) as error:
            connection.close()
            if not isinstance(error, sqlite3.OperationalError):  # it is damaged, so the next process starts anew
                self._path.unlink(missing_ok=True)
            raise
        self._connection, self._pid, self._broken = connection, os.getpid(), False
        return connection


def _seal(state: FileState, digest: str, *, sampled: bool) -> int:
    import xxhash

    row = (state.path, int(sampled), state.size_bytes, state.mtime_ns, state.inode, digest)
    return xxhash.xxh3_64_intdigest(repr(row).encode("utf-8", "surrogateescape")) >> 1
