"""How the lines of a journal are read back: the whole ones, and what was wrong with the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from relive.store.journal.journal_file import JOURNAL_FORMAT

Line = dict[str, Any]
_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_MIN_LINE = 2


class Lines(NamedTuple):
    """The lines of a journal, and what was wrong with its file."""

    lines: list[Line]
    torn_bytes: int = 0  # an unfinished line at the end
    damaged: int = 0  # whole lines that are not JSON
    newer: int = 0  # lines of a later format than this reader knows
    end: int = 0  # the offset behind the last whole line


def read_lines(path: Path, at: int = 0) -> Lines:
    """All whole lines of `<path>.lines`, or those from an offset on; a torn tail is left out and counted."""
    try:
        with path.with_name(path.name + ".lines").open("rb") as file:
            file.seek(at)
            raw = file.read()
    except FileNotFoundError:
        return Lines([])
    body, _, tail = raw.rpartition(b"\n")
    lines: list[Line] = []
    damaged = newer = 0
    for row in body.split(b"\n"):
        if len(row) < _MIN_LINE:
            continue
        try:
            line = _decode(row)
        except (msgspec.DecodeError, RecursionError):
            damaged += 1
            continue
        if isinstance(line, dict) and line.get("v", 0) <= JOURNAL_FORMAT:
            lines.append(line)
        else:
            newer += 1
    return Lines(lines, len(tail), damaged, newer, at + len(raw) - len(tail))


def first_line(path: Path) -> Line | None:
    """The line that opens the journal, without reading the rest."""
    try:
        with path.with_name(path.name + ".lines").open("rb") as file:
            row = file.readline()
        line = _decode(row)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
