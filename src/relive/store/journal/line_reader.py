"""Reads the lines of a journal: the whole ones that fit the schema, and counts of all others."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from relive.store.journal.line_schema import (
    JOURNAL_FORMAT,
    JournalLine,
    JournalStarted,
    kinds,
    line_decoder,
    tag_decoder,
)

_MIN_LINE = 2


class Lines(NamedTuple):
    """The lines of a journal, and what was wrong with its file."""

    lines: list[JournalLine]
    torn_bytes: int = 0  # an unfinished line at the end
    damaged: int = 0  # whole lines that are not JSON, or not what their kind must be
    newer: int = 0  # lines of a later format than this reader knows
    end: int = 0  # the offset behind the last whole line


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
    damaged = newer = 0
    for row in body.split(b"\n"):
        if len(row) < _MIN_LINE:
            continue
        try:
            lines.append(decode(row))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            is_newer, is_unknown = _classify(row)
            newer += is_newer
            damaged += not (is_newer or is_unknown)
    return Lines(lines, len(tail), damaged, newer, at + len(raw) - len(tail))


def _classify(row: bytes) -> tuple[bool, bool]:
    """Whether a line that does not fit the schema is of a later format, or of a kind that a later release added."""
    try:
        line = tag_decoder()(row)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False, False
    return line.v > JOURNAL_FORMAT, bool(line.k) and line.k not in kinds()


def first_line(path: Path) -> JournalStarted | None:
    """The line that opens the journal, without reading the rest; None when there is none that fits the schema."""
    try:
        with path.with_name(path.name + ".lines").open("rb") as file:
            line = line_decoder()(file.readline())
    except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return line if isinstance(line, JournalStarted) else None
