"""Reads the part of a live journal that is final: complete lines, and slots up to the first that may still change."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from relive.store.durable_files import read_at
from relive.store.journal import SLOT_BYTES

RANGE_BYTES = 1 << 20  # limit for the slots, and for the lines, in one range
MAX_LINE_BYTES = 16 << 20  # a longer line is not sent
ABANDONED_S = 10.0  # a slot that stays reserved this long is never written: its thread was interrupted
_KIND_OFFSET = SLOT_BYTES - 1  # the kind is the last byte of a slot to be stored


@dataclass(frozen=True, slots=True)
class TailRange:
    """Bytes to send next; `more` says that further bytes are ready."""

    slots: bytes
    lines: bytes
    more: bool

    @property
    def is_empty(self) -> bool:
        return not self.slots and not self.lines


class JournalTail:
    """Follows the files of one journal; `path` has no suffix."""

    def __init__(self, path: Path) -> None:
        self._slots = path.with_name(path.name + ".slots")
        self._lines = path.with_name(path.name + ".lines")
        self._hole: tuple[int, float] | None = None  # offset of the newest reserved slot that was seen, and when

    def read(self, slots_at: int, lines_at: int, *, final: bool = False) -> TailRange:
        """Returns the bytes after these offsets that will not change. `final` says that the journal has no writer."""
        # Read slots first: the lines that they need were written before them.
        raw = read_at(self._slots, slots_at, RANGE_BYTES // SLOT_BYTES * SLOT_BYTES)
        lines, more_lines = _complete_lines(self._lines, lines_at)
        if more_lines:  # names and loops of later slots may be in them
            return TailRange(b"", lines, more=True)
        slots = raw[: self._settled_bytes(raw, slots_at, final=final)]
        return TailRange(slots, lines, more=len(slots) > RANGE_BYTES - SLOT_BYTES)

    def _settled_bytes(self, raw: bytes, at: int, *, final: bool) -> int:
        """Returns how many of these bytes are slots that will not change any more."""
        kinds = raw[_KIND_OFFSET::SLOT_BYTES]
        skip = 1 if at == 0 and kinds else 0  # the header of the file has no kind
        written = len(kinds.rstrip(b"\0")) or skip
        settled = written
        if not final:
            hole = kinds.find(b"\0", skip, written)
            while hole >= 0 and self._is_abandoned(at + hole * SLOT_BYTES):
                hole = kinds.find(b"\0", hole + 1, written)
            settled = hole if hole >= 0 else written
        return settled * SLOT_BYTES

    def _is_abandoned(self, offset: int) -> bool:
        """Whether the reserved slot at this offset will never be written."""
        now = time.monotonic()
        if self._hole is None or offset > self._hole[0]:
            self._hole = offset, now
        return offset < self._hole[0] or now - self._hole[1] > ABANDONED_S


def _complete_lines(path: Path, at: int) -> tuple[bytes, bool]:
    """Returns the complete lines that fit in a range, or a single longer one; and whether there may be more."""
    raw = read_at(path, at, RANGE_BYTES)
    if len(raw) == RANGE_BYTES and b"\n" not in raw:
        raw = read_at(path, at, MAX_LINE_BYTES)
        line = raw[: raw.find(b"\n") + 1]
        return line, bool(line)
    return raw[: raw.rfind(b"\n") + 1], len(raw) == RANGE_BYTES
