"""JSON lines files that several processes append to: under a lock, synced to disk, without torn or lost lines."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import xxhash

from relive.errors import Damaged
from relive.store.durable_files import atomic_write, sync_folder

FORMAT = 2  # lines of format 1 have neither `n` nor `sum`
HEAD_SUFFIX = ".head"
Line = dict[str, Any]
_decode = msgspec.json.Decoder().decode
_SUM = b',"sum":"%016x"}'  # closes a line; it is the checksum of the bytes before it


def read_all_lines(path: Path) -> list[Line]:
    """Returns every line; raises Damaged if one is changed or missing, because callers rely on seeing the newest line.

    An incomplete line at the end is ignored: its writer was killed before the line was committed.
    """
    try:
        rows = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        rows = []
    if len(rows) < (count := read_line_count(path)):
        raise Damaged(f"{path} has {len(rows)} lines and had {count}; restore the file from a backup")
    return [_parse_line(row, path, number) for number, row in enumerate(rows, 1) if row]


def _parse_line(row: bytes, path: Path, number: int) -> Line:
    try:
        line = _decode(row)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damage(path, number, f"can't be read ({error})") from error
    if not isinstance(line, dict):
        raise _damage(path, number, "can't be read")
    body = row[: -len(_SUM % 0)]
    is_sealed = row == body + _SUM % xxhash.xxh3_64_intdigest(body)
    if (line.get("v", 0) != 1 and not is_sealed) or ("sum" in line and not is_sealed):
        raise _damage(path, number, "is not what was written")
    if line.get("v", 0) > FORMAT:
        raise Damaged(f"line {number} of {path} was written by a newer relive; upgrade to read it")
    if is_sealed and line.pop("n", None) != number:
        raise _damage(path, number, "belongs elsewhere")
    line.pop("sum", None)
    return line


def _damage(path: Path, number: int, what: str) -> Damaged:
    return Damaged(f"line {number} of {path} {what}; restore the file from a backup")


def read_line_count(path: Path) -> int:
    """Returns how many lines a ledger has at least; 0 if that is not known, so that its lines are all there is."""
    head = path.with_suffix(HEAD_SUFFIX)
    try:
        return int(_parse_line(head.read_bytes(), head, 1)["lines"])
    except (OSError, Damaged, KeyError, ValueError):
        return 0


def check_ledger(path: Path) -> Iterator[str]:
    """Yields what of a ledger and its head is damaged."""
    try:
        read_all_lines(path)
    except Damaged as error:
        yield str(error)
    head = path.with_suffix(HEAD_SUFFIX)
    if head.exists() and not read_line_count(path):
        yield f"{head} is damaged; remove it, the next line writes it anew"


def append_lines(path: Path, make: Callable[[list[Line]], list[Line]]) -> list[Line]:
    """Appends the lines that `make` derives from all lines so far, under the lock, and returns them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(path) as file:
        known = read_all_lines(path)
        _cut_torn_line(file)
        new = [{"v": FORMAT, **line} for line in make(known)]
        if new:
            file.seek(0)
            count = file.read().count(b"\n")
            rows = [_seal(line, count + at) for at, line in enumerate(new, 1)]
            file.write(b"".join(row + b"\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())
            # The count comes last: after a crash in between, the ledger is longer than it says, which is no damage.
            atomic_write(path.with_suffix(HEAD_SUFFIX), _seal({"v": FORMAT, "lines": count + len(rows)}, 1))
    if not known:
        sync_folder(path.parent)
    return new


def _seal(line: Line, number: int) -> bytes:
    body = msgspec.json.encode({**line, "n": number})[:-1]
    return body + _SUM % xxhash.xxh3_64_intdigest(body)


@contextlib.contextmanager
def _open_locked(path: Path) -> Iterator[BinaryIO]:
    """Opens the file for appending, locked."""
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _cut_torn_line(file: BinaryIO) -> None:
    """Cuts off an incomplete last line that a killed writer left."""
    size = file.seek(0, os.SEEK_END)
    complete = _complete_bytes(file, size)
    if complete < size:
        file.truncate(complete)
    file.seek(0, os.SEEK_END)


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
