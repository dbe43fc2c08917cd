"""Reads the console output of a run back: its lines in order, and how many are missing between them."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from relive.store.console.console_file import CONSOLE_FORMAT, console_path

_SUM = re.compile(rb',"sum":"([0-9a-f]{8})"\}$')
# Escape sequences of terminals: colours, cursor movements, titles. They could do things to the terminal of a reader.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    """One line that a run printed. `number` counts the lines of the run from 0."""

    number: int
    time_us: int
    stream: str  # "out" or "err"
    text: str
    is_open: bool = False  # not finished yet, like a progress bar that still moves


@dataclass(frozen=True, slots=True)
class ConsoleText:
    """What is there of the console output of one rank."""

    lines: tuple[ConsoleLine, ...] = ()
    total: int = 0  # lines that were printed, kept or not
    has_lost: bool = False  # whether some came too fast to be kept
    damaged: int = 0  # records that are not what was written

    @property
    def omitted(self) -> list[tuple[int, int]]:
        """The number of the first missing line, and how many are missing, for each gap."""
        gaps, expected = [], 0
        for line in self.lines:
            if line.number > expected:
                gaps.append((expected, line.number - expected))
            expected = line.number + 1
        return gaps


def read_console(folder: Path, rank: int = 0) -> ConsoleText:
    """Returns the console output of a rank; empty if there is none."""
    parts = [_read_records(console_path(folder, rank, part)) for part in ("", "-1", "-2", "-open")]
    damaged = sum(wrong for _, wrong in parts)
    head, *turns, unfinished = [records for records, _ in parts]
    turns.sort(key=lambda records: records[0]["n"] if records else 0)
    records = [record for part in (head, *turns) for record in part]
    lines = [line for record in records for line in _lines_of(record)]
    total = max((line.number + 1 for line in lines), default=0)
    has_lost = any(record.get("lost") for record in records)
    last_us = lines[-1].time_us if lines else 0
    still = unfinished[-1]["open"] if unfinished else {}
    opened = [
        ConsoleLine(total + at, last_us, stream, _plain(text), is_open=True)
        for at, (stream, text) in enumerate(still.items())
    ]
    return ConsoleText((*lines, *opened), total + len(opened), has_lost, damaged)


def _lines_of(record: dict[str, Any]) -> list[ConsoleLine]:
    if "text" not in record:
        return []
    number, time_us, stream = record["n"], record["t"], record["s"]
    return [
        ConsoleLine(number + at, time_us, stream, _plain(text)) for at, text in enumerate(record["text"].split("\n"))
    ]


def _plain(text: str) -> str:
    return _ESCAPES.sub("", text)


def _read_records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Returns the records of a file, and how many were damaged; one without its end is still being written."""
    try:
        rows = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    found = [decode_record(row) for row in rows[:-1]]
    whole = [record for record in found if record is not None]
    return whole, len(found) - len(whole)


def decode_record(row: bytes) -> dict[str, Any] | None:
    """Returns a record without its checksum; None if it is not what was written, or of a newer format."""
    sums = _SUM.search(row)
    if sums is None or zlib.crc32(row[: sums.start()]) != int(sums[1], 16):
        return None
    record: dict[str, Any] = msgspec.json.decode(row)
    record.pop("sum", None)
    return record if record.get("v") == CONSOLE_FORMAT else None
