"""A range of bytes of a journal, and how it fits what is stored: what of it is new, missing before it, or different."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from relive.errors import ReliveError
from relive.store.home import JournalName
from relive.store.journal import SLOT_BYTES
from relive.store.sync.run_owners import Sender

_COMPARED_BYTES = 1 << 20  # at a time


@dataclass(frozen=True, slots=True)
class IntakePosition:
    """How many bytes of a journal are stored."""

    slots: int
    lines: int


@dataclass(frozen=True, slots=True)
class JournalRange:
    """Bytes of a journal and their offsets in its files. `final` says that the journal ends with them.

    `sender` is None on a server without tokens; `project` is that of the run, if its first line is in the range.
    """

    run: str
    journal: JournalName
    slots_at: int
    slots: bytes | memoryview
    lines_at: int
    lines: bytes | memoryview
    final: bool = False
    sender: Sender | None = None
    project: str | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.slots) + len(self.lines)

    @property
    def end(self) -> IntakePosition:
        return IntakePosition(self.slots_at + len(self.slots), self.lines_at + len(self.lines))


class RangeGap(ReliveError):
    """A range that starts beyond the end of what is stored."""

    def __init__(self, stored: IntakePosition) -> None:
        super().__init__(f"bytes before these are missing; continue from slots {stored.slots} and lines {stored.lines}")
        self.held = stored


class RangeConflict(ReliveError):
    """A range that overlaps with stored bytes and differs from them."""

    def __init__(self, file: str, at: int) -> None:
        super().__init__(
            f"other bytes are stored at byte {at} of {file}, and stay: this is not the journal that was sent before; "
            "fetch what is stored into another home with `relive fetch`, and compare"
        )
        self.file, self.at = file, at


def slots_file(path: Path) -> Path:
    """Returns the file of the slots of a journal, whose path has no suffix."""
    return path.with_name(path.name + ".slots")


def lines_file(path: Path) -> Path:
    """Returns the file of the lines of a journal, whose path has no suffix."""
    return path.with_name(path.name + ".lines")


def trim_to_new(received: JournalRange, stored: IntakePosition) -> JournalRange:
    """Returns the part of a range that is not stored yet, which may be empty; raises `RangeGap` if it leaves a gap."""
    if received.slots_at > stored.slots or received.lines_at > stored.lines:
        raise RangeGap(stored)
    return replace(
        received,
        slots_at=stored.slots,
        slots=received.slots[stored.slots - received.slots_at :],
        lines_at=stored.lines,
        lines=received.lines[stored.lines - received.lines_at :],
    )


def check_overlap(received: JournalRange, path: Path) -> None:
    """Raises `RangeConflict` if bytes of a range are stored and differ.

    A slot that was abandoned by its thread is stored as zeros. It may have been written since, and is no conflict.
    """
    at = _first_difference(lines_file(path), received.lines_at, received.lines)
    if at is not None:
        raise RangeConflict(lines_file(path).name, at)
    at = _first_difference(slots_file(path), received.slots_at, received.slots, skips_empty_slots=True)
    if at is not None:
        raise RangeConflict(slots_file(path).name, at)


def _first_difference(file: Path, at: int, data: bytes | memoryview, *, skips_empty_slots: bool = False) -> int | None:
    """Returns the offset of the first stored byte that differs from the data for offset `at`; None if none does."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    step = _COMPARED_BYTES // SLOT_BYTES * SLOT_BYTES
    try:
        for begin in range(0, len(data), step):
            stored = os.pread(fd, min(step, len(data) - begin), at + begin)
            given = bytes(data[begin : begin + len(stored)])
            if skips_empty_slots and stored != given:
                given = _with_empty_slots_of(stored, given)
            if stored != given:
                return (
                    at
                    + begin
                    + next(n for n, (one, other) in enumerate(zip(stored, given, strict=True)) if one != other)
                )
            if not stored:
                return None
    finally:
        os.close(fd)
    return None


def _with_empty_slots_of(stored: bytes, given: bytes) -> bytes:
    mended = bytearray(given)
    for begin in range(0, len(stored), SLOT_BYTES):
        if not stored[begin + SLOT_BYTES - 1 : begin + SLOT_BYTES].strip(b"\0"):
            mended[begin : begin + SLOT_BYTES] = stored[begin : begin + SLOT_BYTES]
    return bytes(mended)
