"""Writes the journal of a process: numbers as fixed-size slots in a memory-mapped file, all else as JSON lines.

A slot is 24 bytes, little-endian, in three words of 8 bytes:

    loop u32 | iteration u32      the loop (1 is the run itself) and the iteration that the record belongs to
    value                         float64, int64, or two u32
    time u32 | tag u32            the clock in units of 1024 ns, modulo 2**32 | kind << 24 + name

In a written slot the first and the last word are never zero, and the kind is the last byte to be stored: a slot that a
kill or a power cut left half-written has a zero at one end, and readers ignore it. An atomic counter reserves slots, so
threads, signal handlers and the training loop never wait for each other and the hot path takes no lock.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relive.errors import ReliveError
from relive.model import clean_name
from relive.store.durable_files import sync_folder
from relive.store.journal import slot_kinds
from relive.store.journal.line_schema import JournalLine, NameDefined, SlotsSealed, encode_line

SLOT_BYTES = 24
SLOTS_MAGIC = b"relive\x00\x01" + bytes(16)
FIRST_GROWTH_BYTES = 64 << 10
LAST_GROWTH_BYTES = 8 << 20
ROOT = 1  # the loop number of the run itself
MAX_NAMES = 1 << 24  # a slot has 24 bits for the name
SEAL_SLOTS = 512  # a seal is written when this many slots lack one, or when this much time has passed
SEAL_NS = 5 * 10**9
HOLE_NS = 10 * 10**9  # a slot that was reserved so long ago is not written any more
TICK_NS = 600 * 10**9  # the interval of ticks, well below the 73 minutes after which the 32-bit clock wraps
_CLOCK_MASK = 0xFFFFFFFF

_pack_float = struct.Struct("<IIdII").pack_into
_pack_int = struct.Struct("<IIqII").pack_into
_pack_pair = struct.Struct("<IIiiII").pack_into
_pack_unsigned_pair = struct.Struct("<IIIIII").pack_into
_now = time.monotonic_ns
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync

_FLOAT_TAG = slot_kinds.FLOAT << 24
_CLOSED = bytearray()
LogFunction = Callable[[str, Any, Any], Any]  # name, value, and a place with attributes `loop` and `iteration`
OnError = Callable[[str, Any, Any, Exception], None]


class JournalClosed(ReliveError):
    """A value was logged to a run that has ended."""


class _OpenFile:
    """A file descriptor that is closed when the last reference to it is gone.

    Closing it earlier is unsafe: a thread may be about to write, and the number could then belong to a user's file.
    """

    def __init__(self, path: Path, flags: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | flags, 0o644)
        self._close = os.close

    def __del__(self) -> None:
        if hasattr(self, "_close"):
            self._close(self.fd)


class Journal:
    """The journal of one process of a run, in the files `<path>.slots` and `<path>.lines`."""

    def __init__(self, path: Path, *, loops_begun: int = 0) -> None:
        self.path = path
        self._grow_lock = threading.RLock()
        self._lines = _OpenFile(path.with_name(path.name + ".lines"), os.O_APPEND)
        self._slots = _OpenFile(path.with_name(path.name + ".slots"), 0)
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
        self._sealed = 1  # the first slot without a checksum
        self._sealed_ns = self._hole_ns = _now()
        self._hole = 0  # the slot that the last seal stopped at, because it was not written
        self._has_torn_line = False
        self._line_lock = threading.RLock()  # a signal handler may log while a line is written
        self._ticked_ns = 0
        self.tick()

    # --- the hot path -------------------------------------------------------------------------------------------

    def logger(self, otherwise: LogFunction, on_error: OnError, too_deep: list[bool]) -> LogFunction:
        """Returns a function that records a float at a place; other values go to `otherwise`, errors to `on_error`.

        After a training step none of this code is in the CPU caches, so every call, dict and attribute lookup counts:
        this closure takes half as long there as `append_float`. If even `on_error` hits the recursion limit, it sets
        `too_deep[0]`.
        """
        find_tag, reserve = self._names.get, self._next

        def log(name: str, value: Any, place: Any) -> Any:
            try:
                if type(value) is float and (tag := find_tag(name)):
                    offset = reserve() * SLOT_BYTES
                    time = _now() >> 10 & _CLOCK_MASK
                    try:
                        _pack_float(self._buffer, offset, place.loop, place.iteration, value, time, _FLOAT_TAG | tag)
                    except struct.error:
                        self._grow_and_retry(
                            _pack_float, offset, place.loop, place.iteration, value, tag=_FLOAT_TAG | tag
                        )
                else:
                    otherwise(name, value, place)
            except Exception as error:  # noqa: BLE001 - the user's training must go on
                try:
                    on_error(name, value, place, error)
                except RecursionError:
                    too_deep[0] = True  # no stack left to warn; the warning is given when the run ends
            return value

        return log

    def append_float(self, name: str, value: float, loop: int, iteration: int, kind: int = slot_kinds.FLOAT) -> None:
        """Records a float. Once this returns, the record survives the death of the process."""
        tag = self._names.get(name) or self._define_name(name)
        offset = self._next() * SLOT_BYTES
        try:
            _pack_float(self._buffer, offset, loop, iteration, value, _now() >> 10 & _CLOCK_MASK, kind << 24 | tag)
        except struct.error:
            self._grow_and_retry(_pack_float, offset, loop, iteration, value, tag=kind << 24 | tag)

    def append_int(self, name: str, value: int, loop: int, iteration: int, kind: int = slot_kinds.INT) -> None:
        """Records a 64-bit integer, or a bool or None, depending on `kind`."""
        tag = self._names.get(name) or self._define_name(name)
        self._append_slot(_pack_int, loop, iteration, value, tag=kind << 24 | tag)

    # --- loops --------------------------------------------------------------------------------------------------

    def begin_loop(self, name: str, parent: int, parent_iteration: int, loop: int | None = None) -> int:
        """Records that a loop begins; returns the loop's number, which may be reserved before."""
        loop = self.reserve_loop() if loop is None else loop
        tag = slot_kinds.LOOP << 24 | (self._names.get(name) or self._define_name(name))
        self._append_slot(_pack_unsigned_pair, loop, 0, parent, parent_iteration, tag=tag)
        return loop

    def reserve_loop(self) -> int:
        """Returns the number of a new loop."""
        return next(self._loop_ids)

    def append_loop_range(self, loop: int, start: int, step: int) -> None:
        """Records that the items of a loop are start + step * iteration."""
        self._append_slot(_pack_pair, loop, 0, start, step, tag=slot_kinds.RANGE << 24)

    def append_loop_item(self, loop: int, iteration: int, item: int) -> None:
        """Records an integer item that does not follow from the loop's range."""
        self._append_slot(_pack_int, loop, iteration, item, tag=slot_kinds.ITEM << 24)

    def mark(self, loop: int, iteration: int) -> None:
        """Records the time at which an iteration begins."""
        self._append_slot(_pack_int, loop, iteration, 0, tag=slot_kinds.MARK << 24)

    def end_loop(self, loop: int, iterations: int, how: int = slot_kinds.LEFT_UNKNOWN) -> None:
        """Records that a loop ended, how many iterations it began, and how it was left."""
        self._append_slot(_pack_int, loop, how, iterations, tag=slot_kinds.END << 24)

    # --- everything else ----------------------------------------------------------------------------------------

    def line(self, kind: type[JournalLine], loop: int = ROOT, iteration: int = 0, /, **content: Any) -> None:
        """Records a line. Readers ignore an incomplete line; its slot only marks its place in the sequence."""
        if self._buffer is _CLOSED:
            raise self._closed_error()
        sequence = self._next()
        self._write_line(encode_line(kind(seq=sequence, t=_now(), loop=loop, i=iteration, **content)))
        self._write_slot(sequence, _pack_int, loop, iteration, 0, tag=slot_kinds.LINE << 24)

    def last_line(self, kind: type[JournalLine], /, **content: Any) -> None:
        """Records the end of the run in a closed journal that could not grow: closing it has freed some disk space."""
        self._write_line(encode_line(kind(seq=self._next(), t=_now(), loop=ROOT, i=0, **content)))
        _fdatasync(self._lines.fd)

    def _write_line(self, data: bytes) -> None:
        with self._line_lock:
            whole = b"\n" + data if self._has_torn_line else data
            written = os.write(self._lines.fd, whole)
            if written != len(whole):
                self._take_back(written)
                raise OSError(
                    errno.ENOSPC, "only part of a line could be written; free some disk space", f"{self.path}.lines"
                )
            self._has_torn_line = False

    def _take_back(self, count: int) -> None:
        """Removes the part of a line that could be written: whoever reads it would take it for damage."""
        try:
            os.ftruncate(self._lines.fd, os.fstat(self._lines.fd).st_size - count)
        except OSError:
            self._has_torn_line = True

    def make_room(self, slots: int) -> None:
        """Allocates disk space for so many further slots."""
        self._grow((self.written() + slots) * SLOT_BYTES)

    def is_deleted(self) -> bool:
        """Whether somebody has removed the files of the journal."""
        return not os.fstat(self._slots.fd).st_nlink

    def tick(self) -> None:
        """Records the full 64-bit clock, from which readers reconstruct the 32-bit times of other slots."""
        self._ticked_ns = _now()
        self._append_slot(_pack_int, ROOT, 0, self._ticked_ns, tag=slot_kinds.TICK << 24)

    def sync(self) -> None:
        """Syncs the journal to disk, and ticks when it is time. For a background thread: syncing releases the GIL."""
        if _now() - self._ticked_ns > TICK_NS:
            self.tick()
        written = self.written()
        if not self._synced:
            sync_folder(self.path.parent)
            sync_folder(self.path.parent.parent)
        if written != self._synced:
            _fdatasync(self._slots.fd)
            self._synced = written
            if written - self._sealed >= SEAL_SLOTS or _now() - self._sealed_ns > SEAL_NS:
                self.seal(written)  # only what is on disk: a power cut must not leave a seal without its slots
            _fdatasync(self._lines.fd)

    def seal(self, end: int) -> None:
        """Records checksums of the slots before `end` that have none yet, up to one that is still being written."""
        for fields in self._seals(self._buffer, end, is_last=False):
            self.line(SlotsSealed, **fields)

    def _seals(self, buffer: mmap.mmap | bytearray, end: int, *, is_last: bool) -> list[dict[str, Any]]:
        """Returns the checksums of slots that have none yet; those that were reserved and never written get none."""
        from xxhash import xxh3_64_hexdigest

        begin = first = self._sealed
        end = max(first, min(end, len(buffer) // SLOT_BYTES))  # a slot may be reserved before the file has grown
        kinds, found = bytes(buffer[SLOT_BYTES * (first + 1) - 1 : SLOT_BYTES * end : SLOT_BYTES]), []
        while first < end:
            hole = kinds.find(0, first - begin)
            at = begin + hole if hole >= 0 else end
            if at > first:
                digest = xxh3_64_hexdigest(buffer[SLOT_BYTES * first : SLOT_BYTES * at])
                found.append({"first": first, "count": at - first, "digest": digest, "last": is_last})
            if at < end and not is_last and not self._is_given_up(at):
                end = at
            first = at + 1 if at < end else end
        self._sealed, self._sealed_ns = end, _now()
        return found

    def _is_given_up(self, slot: int) -> bool:
        """Whether a slot that is not written yet never will be."""
        if slot != self._hole:
            self._hole, self._hole_ns = slot, _now()
        return _now() - self._hole_ns > HOLE_NS

    def touch(self) -> None:
        """Updates the mtime of the lines file: the heartbeat for machines that can't see this process."""
        os.utime(self._lines.fd)

    def written(self) -> int:
        """Returns the number of slots reserved so far, including the one that holds the magic number."""
        return _peek(self._counter)

    def loops_begun(self) -> int:
        """Returns the number of loops begun so far."""
        return _peek(self._loop_ids) - ROOT - 1

    def close(self, *, is_lasting: bool = True) -> None:
        """Cuts off the unused tail and, if the journal is to last, seals it and syncs the rest to disk."""
        # A thread that still uses the old map reserved its slot before this line, so the slot is below `used` and stays
        # in the file: writing past the end of a mapped file would be a bus error in the user's training.
        with self._grow_lock:
            buffer, self._buffer = self._buffer, _CLOSED
        used = self.written()
        os.ftruncate(self._slots.fd, used * SLOT_BYTES)
        if is_lasting:
            self._write_last_seals(buffer, min(used, len(buffer) // SLOT_BYTES))
            _fdatasync(self._slots.fd)
            _fdatasync(self._lines.fd)

    def _write_last_seals(self, buffer: mmap.mmap | bytearray, end: int) -> None:
        """Writes seals that have no slot of their own: no slot follows those that they cover."""
        for fields in self._seals(buffer, end, is_last=True):
            line = SlotsSealed(seq=self._next(), t=_now(), loop=ROOT, i=0, **fields)
            try:
                self._write_line(encode_line(line))
            except OSError:  # the disk is full, which is reported elsewhere
                return

    def abandon(self) -> None:
        """Stops writing and leaves the files as they are (in a forked child they belong to the parent)."""
        self._buffer = _CLOSED

    def name_id(self, name: str) -> int:
        """Returns the number of a name, defining it if it is new."""
        return self._names.get(name) or self._define_name(name)

    def _define_name(self, name: str) -> int:
        """Assigns a number to a name. If two threads race, the name gets two numbers, which readers merge."""
        number = next(self._name_ids)
        if number >= MAX_NAMES:
            raise ReliveError(
                f"a run has room for {MAX_NAMES:,} names; put what varies into the value, not into the name"
            )
        self.line(NameDefined, id=number, name=clean_name(name))
        self._names[name] = number
        return number

    def _append_slot(self, pack: Any, *fields: Any, tag: int) -> None:
        self._write_slot(self._next(), pack, *fields, tag=tag)

    def _write_slot(self, sequence: int, pack: Any, *fields: Any, tag: int) -> None:
        offset = sequence * SLOT_BYTES
        try:
            pack(self._buffer, offset, *fields, _now() >> 10 & _CLOCK_MASK, tag)
        except struct.error:
            self._grow_and_retry(pack, offset, *fields, tag=tag)

    def _grow_and_retry(self, pack: Any, offset: int, *fields: Any, tag: int) -> None:
        """Grows the file for a slot that did not fit and writes it, unless the journal was closed meanwhile."""
        self._grow(offset)
        try:
            pack(self._buffer, offset, *fields, _now() >> 10 & _CLOCK_MASK, tag)
        except struct.error:
            if self._buffer is _CLOSED:
                raise self._closed_error() from None
            raise

    def _closed_error(self) -> JournalClosed:
        return JournalClosed(f"{self.path} is closed; open another run to log more")

    def _grow(self, offset: int = 0) -> None:
        """Makes room for the slot at `offset`. Allocates disk space now: a later page fault on a full disk crashes."""
        with self._grow_lock:  # re-entrant, since a signal handler may log while its thread is in here
            if self._buffer is _CLOSED:
                raise self._closed_error()
            while offset + SLOT_BYTES > self._size:
                before = self._size  # read once: a signal handler that logs in between may grow the file further
                size = before + min(max(before, FIRST_GROWTH_BYTES), LAST_GROWTH_BYTES)
                _allocate(self._slots.fd, before, size - before)
                self._buffer = mmap.mmap(self._slots.fd, size)
                self._size = size


def _peek(counter: itertools.count[int]) -> int:
    """Returns the next value of an itertools.count without advancing it."""
    return int(repr(counter)[6:-1])


def _allocate(fd: int, start: int, length: int) -> None:
    """Allocates disk space for a range of a file."""
    try:
        os.posix_fallocate(fd, start, length)
    except AttributeError:  # macOS lacks it; writing zeros allocates as well
        if os.pwrite(fd, bytes(length), start) != length:
            raise OSError("no space left for the journal; free some disk space") from None
