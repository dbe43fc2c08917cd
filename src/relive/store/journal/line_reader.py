"""Reads the lines of a journal: the whole ones that fit the schema, and counts of all others."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from relive.errors import Damaged
from relive.store.journal.line_schema import (
    JOURNAL_FORMAT,
    SUM,
    JournalLine,
    JournalStarted,
    kinds,
    line_decoder,
)

_MIN_LINE = 2
_PART_BYTES = 4 << 20  # read at a time by followers, which bounds memory
_SUM_BYTES = len(SUM % 0)
FIRST_WITH_SUMS = 2  # the format since which lines have checksums


class Lines(NamedTuple):
    """The lines of a journal, and what was wrong with its file."""

    lines: list[JournalLine]
    torn_bytes: int = 0  # an unfinished line at the end
    damaged: int = 0  # whole lines that are not JSON, not what their kind must be, or not as they were written
    newer: int = 0  # lines of a later format than this reader knows
    end: int = 0  # the offset behind the last whole line
    skipped: frozenset[int] = frozenset()  # positions of lines that a later release wrote


def read_lines(path: Path, at: int = 0) -> Lines:
    """Reads all whole lines of `<path>.lines`, or those from an offset on; a torn tail is skipped and counted."""
    try:
        with path.with_name(path.name + ".lines").open("rb") as file:
            file.seek(at)
            raw = file.read()
    except FileNotFoundError:
        return Lines([])
    body, _, tail = raw.rpartition(b"\n")
    decode = line_decoder()
    lines: list[JournalLine] = []
    skipped: set[int] = set()
    damaged = newer = 0
    for row in body.split(b"\n"):
        if len(row) < _MIN_LINE:
            continue
        try:
            line = decode(row)
            if _is_whole(row) if _has_sum(row) else line.v < FIRST_WITH_SUMS:
                lines.append(line)
            else:
                damaged += 1
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            later = _of_later_release(row)
            if later is None:
                damaged += 1
            else:
                newer += later.v > JOURNAL_FORMAT
                skipped.add(later.seq)
    return Lines(lines, len(tail), damaged, newer, at + len(raw) - len(tail), frozenset(skipped))


def _of_later_release(row: bytes) -> _LineTag | None:
    """Returns the tag of a line of a later format, or of a kind that a later release added; None for others."""
    if _has_sum(row) and not _is_whole(row):
        return None
    try:
        line = _tag_decoder()(row)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return line if line.v > JOURNAL_FORMAT or (line.k and line.k not in kinds()) else None


class LineFollower:
    """The lines of some kinds of a journal that grows, and its last line: every byte is read once, a part at a time."""

    def __init__(self, path: Path, wanted: frozenset[str], max_bytes: int) -> None:
        self._path = path.with_name(path.name + ".lines")
        self._wanted, self._max_bytes = wanted, max_bytes
        self._file = self._at = self._kept_bytes = 0
        self._kept: list[JournalLine] = []
        self._last: JournalLine | None = None

    def lines(self) -> list[JournalLine]:
        """Returns the wanted lines, and the last line whatever its kind; raises `Damaged` if they are too long."""
        self._advance()
        if self._kept_bytes > self._max_bytes:
            most = f"{self._max_bytes >> 20} MiB"
            raise Damaged(f"{self._path.name} describes the run in more than {most}; remove it with `relive rm`")
        if self._last is None or (self._kept and self._kept[-1] is self._last):
            return self._kept
        return [*self._kept, self._last]

    def _advance(self) -> None:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._restart(0)
            return
        with file:
            stat = os.fstat(file.fileno())
            if stat.st_ino != self._file or stat.st_size < self._at:  # it was rewritten
                self._restart(stat.st_ino)
            if stat.st_size == self._at or self._kept_bytes > self._max_bytes:
                return
            file.seek(self._at)
            while self._kept_bytes <= self._max_bytes and (raw := _read_rows(file)):
                self._at += len(raw)
                self._take(raw)
        if self._kept_bytes > self._max_bytes:
            self._kept = []

    def _take(self, raw: bytes) -> None:
        decode_tag = _tag_decoder()
        last: JournalLine | bytes = b""
        for row in raw[:-1].split(b"\n"):
            try:
                is_wanted = decode_tag(row).k in self._wanted
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                continue  # damaged
            line = _decode_whole(row) if is_wanted else None
            last = line or row
            if line is not None:
                self._kept.append(line)
                self._kept_bytes += len(row)
        self._last = (last if isinstance(last, JournalLine) else _decode_whole(last)) or self._last

    def _restart(self, file: int) -> None:
        self._file, self._at, self._kept_bytes, self._kept, self._last = file, 0, 0, [], None


def _read_rows(file: BinaryIO) -> bytes:
    """Returns some megabytes of whole lines, or one that is longer; empty at the end."""
    raw = file.read(_PART_BYTES)
    whole, end, tail = raw.rpartition(b"\n")
    if not end:
        rest = file.readline()
        return raw + rest if rest.endswith(b"\n") else b""
    file.seek(-len(tail), os.SEEK_CUR)
    return whole + end


def _decode_whole(row: bytes) -> JournalLine | None:
    """Returns a line that is as it was written, of a kind that this release knows; None for others."""
    try:
        line = line_decoder()(row)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return line if (_is_whole(row) if _has_sum(row) else line.v < FIRST_WITH_SUMS) else None


def first_line(path: Path) -> JournalStarted | None:
    """The line that opens the journal, without reading the rest; None when there is none that fits the schema."""
    try:
        with path.with_name(path.name + ".lines").open("rb") as file:
            row = file.readline().rstrip(b"\n")
            line = line_decoder()(row)
    except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return line if isinstance(line, JournalStarted) and (_is_whole(row) or not _has_sum(row)) else None


def _has_sum(row: bytes) -> bool:
    return row[-_SUM_BYTES : 8 - _SUM_BYTES] == SUM[:8]


def _is_whole(row: bytes) -> bool:
    """Whether a line that has a checksum is as it was written."""
    return row[-_SUM_BYTES:] == SUM % zlib.crc32(row[:-_SUM_BYTES])


class _LineTag(msgspec.Struct, frozen=True):
    """The format, the kind and the position of a line, of any release."""

    v: int = 0
    k: str = ""
    seq: int = 0


@lru_cache(maxsize=1)
def _tag_decoder() -> Callable[[bytes], _LineTag]:
    return msgspec.json.Decoder(_LineTag).decode
