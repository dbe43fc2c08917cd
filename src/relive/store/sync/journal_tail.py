"""What can be sent of a journal while it is written: whole lines, and slots up to the first that isn't settled."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from relive.store.journal import SLOT_BYTES

RANGE_BYTES = 1 << 20  # of slots, and of lines, in one range
LINE_BYTES = 16 << 20  # a longer line is not sent
HOLE_S = 10.0  # a slot that is reserved and not written for so long never will be: its thread was interrupted
_KIND = SLOT_BYTES - 1  # the last byte of a slot to be stored


@dataclass(frozen=True, slots=True)
class TailRange:
    """What to send next; `more` says that there is more already."""

    slots: bytes
    lines: bytes
    more: bool

    @property
    def is_empty(self) -> bool:
        return not self.slots and not self.lines


class JournalTail:
    """Follows the files of one journal. `path` is without suffix."""

    def __init__(self, path: Path) -> None:
        self._slots = path.with_name(path.name + ".slots")
        self._lines = path.with_name(path.name + ".lines")
        self._hole: tuple[int, float] | None = None  # where one was met, and when

    def read(self, slots_at: int, lines_at: int, *, final: bool = False) -> TailRange:
        """What comes after these offsets and will not change any more. `final`: nobody writes this journal now."""
        # Slots first: the lines that they need were written before them.
        raw = _read(self._slots, slots_at, RANGE_BYTES // SLOT_BYTES * SLOT_BYTES)
        lines, more_lines = _whole_lines(self._lines, lines_at)
        if more_lines:  # names and loops of later slots may be in them
            return TailRange(b"", lines, more=True)
        slots = raw[: self._settled(raw, slots_at, final=final)]
        return TailRange(slots, lines, more=len(slots) > RANGE_BYTES - SLOT_BYTES)

    def _settled(self, raw: bytes, at: int, *, final: bool) -> int:
        """How many of these bytes are slots that will not change any more."""
        kinds = raw[_KIND::SLOT_BYTES]
        skip = 1 if at == 0 and kinds else 0  # the file's mark has no kind
        written = len(kinds.rstrip(b"\0")) or skip
        settled = written
        if not final:
            hole = kinds.find(b"\0", skip, written)
            while hole >= 0 and self._is_forsaken(at + hole * SLOT_BYTES):
                hole = kinds.find(b"\0", hole + 1, written)
            settled = hole if hole >= 0 else written
        return settled * SLOT_BYTES

    def _is_forsaken(self, offset: int) -> bool:
        now = time.monotonic()
        if self._hole is None or offset > self._hole[0]:
            self._hole = offset, now
        return offset < self._hole[0] or now - self._hole[1] > HOLE_S


def _read(path: Path, at: int, count: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, count, at)
    finally:
        os.close(fd)


def _whole_lines(path: Path, at: int) -> tuple[bytes, bool]:
    """Lines up to a newline, as many as fit in a range, or one that is longer; and whether there are more of them."""
    raw = _read(path, at, RANGE_BYTES)
    if len(raw) == RANGE_BYTES and b"\n" not in raw:
        raw = _read(path, at, LINE_BYTES)
        whole = raw[: raw.find(b"\n") + 1]
        return whole, bool(whole)
    return raw[: raw.rfind(b"\n") + 1], len(raw) == RANGE_BYTES
