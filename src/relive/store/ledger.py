"""Files of JSON lines that several processes add to: one at a time, on disk before it counts, no line ever torn."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from relive.errors import Damaged

FORMAT = 1
Line = dict[str, Any]
_decode = msgspec.json.Decoder().decode


def read_all_lines(path: Path) -> list[Line]:
    """Every line, or Damaged: who decides by the newest line must not miss one. A torn tail never counted."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    return [_read(row, path) for row in raw.split(b"\n")[:-1] if row]


def _read(row: bytes, path: Path) -> Line:
    try:
        line = _decode(row)
    except msgspec.DecodeError as error:
        raise Damaged(f"a line of {path} can't be read ({error}); restore the file from a backup") from error
    if not isinstance(line, dict) or line.get("v", 0) > FORMAT:
        raise Damaged(f"a line of {path} was written by a newer relive; upgrade to read it")
    return line


def add_lines(path: Path, make: Callable[[list[Line]], list[Line]]) -> list[Line]:
    """Add what `make` says in view of all lines so far; nobody else adds meanwhile. Gives the new lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path) as file:
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
def _alone(path: Path) -> Iterator[BinaryIO]:
    """The file, open at its end and locked. A torn end, left by a killed writer, never counted: it is cut off."""
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        whole = _whole_bytes(file, size)
        if whole < size:
            file.truncate(whole)
        file.seek(0, os.SEEK_END)
        yield file


def _whole_bytes(file: BinaryIO, size: int) -> int:
    """How many bytes there are up to the end of the last whole line."""
    end = size
    while end:
        start = max(0, end - 65_536)
        file.seek(start)
        at = file.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def sync_folder(folder: Path) -> None:
    """Force a new name in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
