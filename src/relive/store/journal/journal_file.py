"""How a run is written: fixed slots in a memory-mapped file, and lines beside them for all that isn't a number.

A slot is 24 bytes, little-endian, in three words of 8 bytes:

    loop u32 | iteration u32      which loop (1 is the run itself) and which iteration of it the record belongs to
    value                         float64, int64, or two u32
    time u32 | tag u32            the clock in units of 1024 ns, modulo 2**32 | kind << 24 + name

The first and the last word are never zero in a written slot, and the kind is the last byte to be stored: a slot that a
kill or a power cut left half written has a zero at one end and is ignored. Slots are reserved by an atomic counter, so
that threads, signal handlers and the training loop never wait for each other and no lock is on the hot path.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from relive.errors import ReliveError
from relive.model import clean_name
from relive.store.journal import slot_kinds

JOURNAL_FORMAT = 1
SLOT_BYTES = 24
SLOTS_MAGIC = b"relive\x00\x01" + bytes(16)
FIRST_GROWTH_BYTES = 64 << 10
LAST_GROWTH_BYTES = 8 << 20
ROOT = 1  # the loop number of the run itself
MAX_NAMES = 1 << 24  # a slot has 24 bits for the name
TICK_NS = 600 * 10**9  # the 32-bit clock wraps after 73 minutes; ticks come well within that
_CLOCK_BITS = 0xFFFFFFFF

_pack_float = struct.Struct("<IIdII").pack_into
_pack_int = struct.Struct("<IIqII").pack_into
_pack_pair = struct.Struct("<IIiiII").pack_into
_pack_unsigned_pair = struct.Struct("<IIIIII").pack_into
_now = time.monotonic_ns
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
_encode = msgspec.json.Encoder().encode


_FLOAT_TAG = slot_kinds.FLOAT << 24
_CLOSED = bytearray()
Log = Callable[[str, Any, Any], Any]  # name, value, and a place with its loop and iteration
Failed = Callable[[str, Any, Any, Exception], None]


class JournalClosed(ReliveError):
    """Somebody logs to a run that has ended."""


class _MappedFile:
    """A descriptor that is closed when nobody can use it any more.

    Not earlier: a thread may be about to write to it, and by then the number could be another file of the user's.
    """

    def __init__(self, path: Path, flags: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | flags, 0o644)
        self._close = os.close

    def __del__(self) -> None:
        if hasattr(self, "_close"):
            self._close(self.fd)


class Journal:
    """The journal of one process of one run. `path` is without suffix; the files are `.slots` and `.lines`."""

    def __init__(self, path: Path, *, loops_begun: int = 0) -> None:
        self.path = path
        self._growing = threading.RLock()
        self._lines = _MappedFile(path.with_name(path.name + ".lines"), os.O_APPEND)
        self._slots = _MappedFile(path.with_name(path.name + ".slots"), 0)
        self._size = 0
        self._buffer: mmap.mmap | bytearray = bytearray()
        self._grow()
        self._buffer[:SLOT_BYTES] = SLOTS_MAGIC
        self._counter = itertools.count(1)
        self._next = self._counter.__next__
        self._names: dict[str, int] = {}
        self._name_ids = itertools.count(1)
        self._loop_ids = itertools.count(ROOT + 1 + loops_begun)
        self._synced = 0
        self._has_torn_line = False
        self._ticked_ns = 0
        self.tick()

    # --- the hot path -------------------------------------------------------------------------------------------

    def logger(self, otherwise: Log, failed: Failed, too_deep: list[bool]) -> Log:
        """A function that records a float at a place, in as few steps as Python allows; all else is left to the others.

        After a training step nothing of it is in the caches, so each function, dict and attribute on the way counts:
        this way takes half as long there as one through `append_float`. What can't even fail any more, at the edge of a
        recursion, is noted in `too_deep`.
        """
        number_of, reserve = self._names.get, self._next

        def log(name: str, value: Any, place: Any) -> Any:
            try:
                if type(value) is float and (tag := number_of(name)):
                    offset = reserve() * SLOT_BYTES
                    time = _now() >> 10 & _CLOCK_BITS
                    try:
                        _pack_float(self._buffer, offset, place.loop, place.iteration, value, time, _FLOAT_TAG | tag)
                    except struct.error:
                        self._again(_pack_float, offset, place.loop, place.iteration, value, tag=_FLOAT_TAG | tag)
                else:
                    otherwise(name, value, place)
            except Exception as error:  # noqa: BLE001 - the user's training must go on
                try:
                    failed(name, value, place, error)
                except RecursionError:
                    too_deep[0] = True  # there is no room left to say so; it is said when the run ends
            return value

        return log

    def append_float(self, name: str, value: float, loop: int, iteration: int, kind: int = slot_kinds.FLOAT) -> None:
        """Record a float. Once this returns the record survives the death of the process."""
        tag = self._names.get(name) or self._define(name)
        offset = self._next() * SLOT_BYTES
        try:
            _pack_float(self._buffer, offset, loop, iteration, value, _now() >> 10 & _CLOCK_BITS, kind << 24 | tag)
        except struct.error:
            self._again(_pack_float, offset, loop, iteration, value, tag=kind << 24 | tag)

    def append_int(self, name: str, value: int, loop: int, iteration: int, kind: int = slot_kinds.INT) -> None:
        """Record a 64-bit integer (or a bool, or nothing: `kind` tells)."""
        tag = self._names.get(name) or self._define(name)
        self._slot(_pack_int, loop, iteration, value, tag=kind << 24 | tag)

    # --- loops --------------------------------------------------------------------------------------------------

    def begin_loop(self, name: str, parent: int, parent_iteration: int) -> int:
        """Enter a loop; gives its number."""
        loop = next(self._loop_ids)
        tag = slot_kinds.LOOP << 24 | (self._names.get(name) or self._define(name))
        self._slot(_pack_unsigned_pair, loop, 0, parent, parent_iteration, tag=tag)
        return loop

    def loop_range(self, loop: int, start: int, step: int) -> None:
        self._slot(_pack_pair, loop, 0, start, step, tag=slot_kinds.RANGE << 24)

    def loop_item(self, loop: int, iteration: int, item: int) -> None:
        self._slot(_pack_int, loop, iteration, item, tag=slot_kinds.ITEM << 24)

    def mark(self, loop: int, iteration: int) -> None:
        self._slot(_pack_int, loop, iteration, 0, tag=slot_kinds.MARK << 24)

    def end_loop(self, loop: int, iterations: int) -> None:
        self._slot(_pack_int, loop, 0, iterations, tag=slot_kinds.END << 24)

    # --- everything else ----------------------------------------------------------------------------------------

    def line(self, kind: str, loop: int = ROOT, iteration: int = 0, /, **content: Any) -> None:
        """Record anything that JSON can say. A line without its end is ignored; the slot only marks its place."""
        if self._buffer is _CLOSED:
            raise self._closed()
        sequence = self._next()
        record = {"v": JOURNAL_FORMAT, "seq": sequence, "t": _now(), "k": kind, "loop": loop, "i": iteration, **content}
        try:
            data = _encode(record) + b"\n"
        except UnicodeEncodeError:  # a path that is no text, say
            data = _encode(_as_text(record)) + b"\n"
        self._write(data)
        self._slot_at(sequence, _pack_int, loop, iteration, 0, tag=slot_kinds.LINE << 24)

    def last_line(self, kind: str, /, **content: Any) -> None:
        """Record how it ended in a closed journal that could not grow; what closing it cut off makes room."""
        record = {"v": JOURNAL_FORMAT, "seq": self._next(), "t": _now(), "k": kind, "loop": ROOT, "i": 0, **content}
        self._write((b"\n" if self._has_torn_line else b"") + _encode(_as_text(record)) + b"\n")
        _fdatasync(self._lines.fd)

    def _write(self, data: bytes) -> None:
        if os.write(self._lines.fd, data) != len(data):
            self._has_torn_line = True
            raise OSError(f"{self.path}.lines: only part of a line could be written; free some space")

    def tick(self) -> None:
        """Record the whole clock, so that the short times of other slots can be placed."""
        self._ticked_ns = _now()
        self._slot(_pack_int, ROOT, 0, self._ticked_ns, tag=slot_kinds.TICK << 24)

    def sync(self) -> None:
        """Force what was written to disk; ticks when it is time. For a background thread: it lets others run."""
        if _now() - self._ticked_ns > TICK_NS:
            self.tick()
        written = self.written()
        if not self._synced:
            _sync_folder(self.path.parent)
            _sync_folder(self.path.parent.parent)
        if written != self._synced:
            _fdatasync(self._slots.fd)
            _fdatasync(self._lines.fd)
            self._synced = written

    def touch(self) -> None:
        """Show machines that can't see our process that the run is alive."""
        os.utime(self._lines.fd)

    def written(self) -> int:
        """How many slots have been reserved, the first of the file included."""
        return _peek(self._counter)

    def loops_begun(self) -> int:
        return _peek(self._loop_ids) - ROOT - 1

    def close(self, *, is_lasting: bool = True) -> None:
        """Cut the unused tail off and force the rest to disk, unless it is read soon and then thrown away."""
        # Who still holds the map reserved its slot before this line, so its slot is below `used` and stays in the file:
        # writing past the end of a mapped file would be a bus error in somebody's training.
        with self._growing:
            self._buffer = _CLOSED
        used = self.written() * SLOT_BYTES
        os.ftruncate(self._slots.fd, used)
        if is_lasting:
            _fdatasync(self._slots.fd)
            _fdatasync(self._lines.fd)

    def abandon(self) -> None:
        """Write no more, and leave the files as they are (in a forked child they are the parent's)."""
        self._buffer = _CLOSED

    def name_id(self, name: str) -> int:
        return self._names.get(name) or self._define(name)

    def _define(self, name: str) -> int:
        """Give a name its number. Two threads may both do it: a name with two numbers is still that name."""
        number = next(self._name_ids)
        if number >= MAX_NAMES:
            raise ReliveError(f"a run has room for {MAX_NAMES:,} names; log what is many as values, not as names")
        self.line("name", id=number, name=clean_name(name))
        self._names[name] = number
        return number

    def _slot(self, pack: Any, *fields: Any, tag: int) -> None:
        self._slot_at(self._next(), pack, *fields, tag=tag)

    def _slot_at(self, sequence: int, pack: Any, *fields: Any, tag: int) -> None:
        offset = sequence * SLOT_BYTES
        try:
            pack(self._buffer, offset, *fields, _now() >> 10 & _CLOCK_BITS, tag)
        except struct.error:
            self._again(pack, offset, *fields, tag=tag)

    def _again(self, pack: Any, offset: int, *fields: Any, tag: int) -> None:
        """The slot did not fit: make room for it, unless the journal was closed meanwhile."""
        self._grow(offset)
        try:
            pack(self._buffer, offset, *fields, _now() >> 10 & _CLOCK_BITS, tag)
        except struct.error:
            if self._buffer is _CLOSED:
                raise self._closed() from None
            raise

    def _closed(self) -> JournalClosed:
        return JournalClosed(f"{self.path} is closed; open another run to log more")

    def _grow(self, offset: int = 0) -> None:
        """Make room for the slot at `offset`. Disk space is taken now: a page that can't be stored later is a crash."""
        with self._growing:  # re-entrant, since a signal handler may log while its thread is in here
            if self._buffer is _CLOSED:
                raise self._closed()
            while offset + SLOT_BYTES > self._size:
                before = self._size  # read once: a handler that logs in between may have grown it further
                size = before + min(max(before, FIRST_GROWTH_BYTES), LAST_GROWTH_BYTES)
                _allocate(self._slots.fd, before, size - before)
                self._buffer = mmap.mmap(self._slots.fd, size)
                self._size = size


def _as_text(form: Any) -> Any:
    """The same with texts that can be written: what is no character is told by its number."""
    if isinstance(form, str):
        return form.encode("utf-8", "backslashreplace").decode()
    if isinstance(form, dict):
        return {_as_text(key): _as_text(value) for key, value in form.items()}
    return [_as_text(item) for item in form] if isinstance(form, list | tuple) else form


def _sync_folder(path: Path) -> None:
    """Make the names in a folder as durable as the files."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _peek(counter: itertools.count[int]) -> int:
    """What an itertools.count would give next, without moving it."""
    return int(repr(counter)[6:-1])


def _allocate(fd: int, start: int, length: int) -> None:
    try:
        os.posix_fallocate(fd, start, length)
    except AttributeError:  # macOS: writing zeros takes the space as well
        if os.pwrite(fd, bytes(length), start) != length:
            raise OSError("no space left for the journal; free some") from None
