"""JSON lines files that several processes append to: under a lock, synced to disk, without torn lines."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from relive.errors import Damaged
from relive.store.journal import sync_folder

FORMAT = 1
Line = dict[str, Any]
_decode = msgspec.json.Decoder().decode


def read_all_lines(path: Path) -> list[Line]:
    """Returns every line; raises Damaged if one can't be read, because callers rely on seeing the newest line.

    An incomplete line at the end is ignored: its writer was killed before the line was committed.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    return [_parse_line(row, path) for row in raw.split(b"\n")[:-1] if row]


def _parse_line(row: bytes, path: Path) -> Line:
    try:
        line = _decode(row)
    except msgspec.DecodeError as error:
        raise Damaged(f"a line of {path} can't be read ({error}); restore the file from a backup") from error
    if not isinstance(line, dict) or line.get("v", 0) > FORMAT:
        raise Damaged(f"a line of {path} was written by a newer relive; upgrade to read it")
    return line


def append_lines(path: Path, make: Callable[[list[Line]], list[Line]]) -> list[Line]:
    """Appends the lines that `make` derives from all lines so far, under the lock, and returns them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(path) as file:
        known = read_all_lines(path)
        new = [{"v": FORMAT, **line} for line in make(known)]
        if new:
            file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in new))
            file.flush()
            os.fsync(file.fileno())
    if not known:
        sync_folder(path.parent)
    return new


@contextlib.contextmanager
def _open_locked(path: Path) -> Iterator[BinaryIO]:
    """Opens the file for appending, locked, and cuts off an incomplete last line that a killed writer left."""
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        complete = _complete_bytes(file, size)
        if complete < size:
            file.truncate(complete)
        file.seek(0, os.SEEK_END)
        yield file


def _complete_bytes(file: BinaryIO, size: int) -> int:
    """Returns the number of bytes up to the end of the last complete line."""
    end = size
    while end:
        start = max(0, end - 65_536)
        file.seek(start)
        at = file.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
