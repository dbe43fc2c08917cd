"""Receives ranges of journals on the server: each byte once, in order, and durable before it is acknowledged.

One thread handles all ranges in batches. It trims from each range what the journal has already, writes the rest of the
batch to the redo log, forces that to disk, appends to the journals, and acknowledges. So a range costs a share of one
fsync, however many journals there are; the journals themselves are forced to disk when the log is full.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from relive.errors import ReliveError
from relive.store.durable_files import sync_file, sync_folder
from relive.store.home import Home, JournalName
from relive.store.journal import mark_for_reindexing, record_heartbeat
from relive.store.sync.redo_log import FrameHeader, RedoLog

MAX_LOG_BYTES = 64 << 20  # beyond it, the journals are forced to disk and the log is emptied
MAX_PENDING_BYTES = 64 << 20  # waiting for the disk; beyond it, clients are asked to retry
MAX_SINGLE_SYNCS = 16  # more files are forced to disk by one call for the whole file system
HEARTBEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class IntakePosition:
    """How many bytes of a journal are stored."""

    slots: int
    lines: int


@dataclass(frozen=True, slots=True)
class JournalRange:
    """Bytes of a journal and their offsets in its files. `final` says that the journal ends with them."""

    run: str
    journal: JournalName
    slots_at: int
    slots: bytes | memoryview
    lines_at: int
    lines: bytes | memoryview
    final: bool = False

    @property
    def size_bytes(self) -> int:
        return len(self.slots) + len(self.lines)


class RangeGap(ReliveError):
    """A range that starts beyond the end of what is stored."""

    def __init__(self, stored: IntakePosition) -> None:
        super().__init__(f"bytes before these are missing; continue from slots {stored.slots} and lines {stored.lines}")
        self.held = stored


class IntakeBusy(ReliveError):
    """Too many bytes are waiting in memory for the disk."""


class StoreFull(ReliveError):
    """The disk is full or can't be written."""


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


class Intake:
    """Writes received ranges to a home. A context manager; a second one on the same home is refused."""

    def __init__(self, home: Home) -> None:
        home.create()
        self._home = home
        self._lock = _lock_home(home)
        self._log = RedoLog(home.path / "redo.log")
        self._dirty: set[Path] = set()  # files that only the redo log makes durable
        self._heartbeats: dict[str, float] = {}  # run → when its heartbeat was last recorded
        self._pending_bytes = 0
        self._pending_lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[JournalRange, Future[IntakePosition]] | None] = queue.SimpleQueue()
        self.batches = self.ranges = self.taken_bytes = self.failures = 0
        self._recover()
        self._thread = threading.Thread(target=self._work, name="relive-intake", daemon=True)
        self._thread.start()

    def __enter__(self) -> Intake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    def submit(self, received: JournalRange) -> Future[IntakePosition]:
        """Queues a range; the future is done when the bytes are durable."""
        with self._pending_lock:
            if self._pending_bytes and self._pending_bytes + received.size_bytes > MAX_PENDING_BYTES:
                raise IntakeBusy("too much is waiting for the disk; try again in a second")
            self._pending_bytes += received.size_bytes
        future: Future[IntakePosition] = Future()
        self._queue.put((received, future))
        return future

    def held(self, run: str, journal: JournalName) -> IntakePosition:
        """Returns how much of a journal is stored."""
        path = self._home.run_folder(run) / journal.stem
        return IntakePosition(file_size(_slots_file(path)), file_size(_lines_file(path)))

    def close(self) -> None:
        """Writes what was submitted, forces everything to disk, and unlocks the home."""
        self._queue.put(None)
        self._thread.join()
        self._flush_journals()
        self._log.close()
        os.close(self._lock)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    batch.append(self._queue.get_nowait())
            is_open = None not in batch
            self._process([queued for queued in batch if queued is not None])

    def _process(self, batch: list[tuple[JournalRange, Future[IntakePosition]]]) -> None:
        positions: dict[tuple[str, JournalName], IntakePosition] = {}
        accepted: list[tuple[JournalRange, Future[IntakePosition]]] = []
        for received, future in batch:
            key = received.run, received.journal
            try:
                new = trim_to_new(received, positions.get(key) or self.held(*key))
            except RangeGap as gap:
                self._answer(received, future, gap)
                continue
            positions[key] = _end_of(new)
            accepted.append((new, future))
        self._log_and_apply(accepted)
        for received, _ in batch:
            with self._pending_lock:
                self._pending_bytes -= received.size_bytes

    def _log_and_apply(self, accepted: list[tuple[JournalRange, Future[IntakePosition]]]) -> None:
        try:
            self._log.append((_frame_header(one), (one.slots, one.lines)) for one, _ in accepted if one.size_bytes)
        except OSError as error:
            for one, future in accepted:
                self._answer(one, future, StoreFull(f"{error.strerror} on the server; free some space there"))
            return
        failed: set[tuple[str, JournalName]] = set()
        for one, future in accepted:
            try:
                if (one.run, one.journal) in failed:
                    raise OSError("the range before it could not be written")
                self._answer(one, future, self._apply(one))
            except OSError as error:
                failed.add((one.run, one.journal))
                self._answer(one, future, StoreFull(f"{error.strerror or error} on the server; free some space there"))
        self.batches += 1
        if self._log.size_bytes > MAX_LOG_BYTES:
            with contextlib.suppress(OSError):  # the log stays, and this is tried again after the next batch
                self._flush_journals()

    def _answer(self, one: JournalRange, future: Future[IntakePosition], answer: IntakePosition | ReliveError) -> None:
        if isinstance(answer, IntakePosition):
            self.ranges += 1
            self.taken_bytes += one.size_bytes
            future.set_result(answer)
        else:
            self.failures += not isinstance(answer, RangeGap)
            future.set_exception(answer)

    def _apply(self, one: JournalRange) -> IntakePosition:
        folder = self._home.run_folder(one.run)
        folder.mkdir(exist_ok=True)
        path = folder / one.journal.stem
        # Slots first: once the last line of a journal is stored, the values before it must be, too.
        for file, at, data in (
            (_slots_file(path), one.slots_at, one.slots),
            (_lines_file(path), one.lines_at, one.lines),
        ):
            if data or not file.exists():
                _append(file, at, data)
                self._dirty.add(file)
        now = time.monotonic()
        if now - self._heartbeats.get(one.run, -HEARTBEAT_S) >= HEARTBEAT_S:
            self._heartbeats[one.run] = now
            record_heartbeat(folder)
        if one.final:
            mark_for_reindexing(folder)
        return _end_of(one)

    # --- durability ---------------------------------------------------------------------------------------------

    def _flush_journals(self) -> None:
        """Forces the journals to disk, and empties the log."""
        files = [file for file in self._dirty if file.exists()]  # a run may have been removed meanwhile
        if len(files) > MAX_SINGLE_SYNCS:
            _sync_file_system(self._home.path)
        else:
            for file in files:
                sync_file(file)
            for folder in {*(file.parent for file in files), self._home.runs}:
                sync_folder(folder)
        self._dirty.clear()
        self._log.clear()

    def _recover(self) -> None:
        """After a crash: writes every range of the log to its place again, and truncates what follows them."""
        ends: dict[Path, int] = {}
        for header, body in self._log.frames():
            path = self._home.run_folder(header.run) / header.stem
            parts = (
                (_slots_file(path), header.slots_at, body[: header.slots_bytes]),
                (_lines_file(path), header.lines_at, body[header.slots_bytes :]),
            )
            for file, at, data in parts:
                if file_size(file) >= at and (at == 0 or file.exists()):  # else the run was removed since
                    file.parent.mkdir(exist_ok=True)
                    _append(file, at, data)
                    ends[file] = at + len(data)
            if path.parent.is_dir():
                record_heartbeat(path.parent)
        for file, end in ends.items():
            os.truncate(file, end)
        self._dirty.update(ends)
        self._flush_journals()


def _end_of(one: JournalRange) -> IntakePosition:
    return IntakePosition(one.slots_at + len(one.slots), one.lines_at + len(one.lines))


def _frame_header(one: JournalRange) -> FrameHeader:
    return FrameHeader(one.run, one.journal.stem, one.slots_at, len(one.slots), one.lines_at)


def _slots_file(path: Path) -> Path:
    return path.with_name(path.name + ".slots")


def _lines_file(path: Path) -> Path:
    return path.with_name(path.name + ".lines")


def file_size(path: Path) -> int:
    """Returns the size of a file; 0 when it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _append(path: Path, at: int, data: bytes | memoryview) -> None:
    """Writes all bytes at an offset, or leaves the file as it was."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if os.fstat(fd).st_size < at:
            raise OSError(errno.ESTALE, "the run was removed meanwhile")
        view, position = memoryview(data), at
        while view:
            written = os.pwrite(fd, view, position)
            view, position = view[written:], position + written
    except OSError as error:
        if error.errno != errno.ESTALE:
            os.ftruncate(fd, at)
        raise
    finally:
        os.close(fd)


def _sync_file_system(path: Path) -> None:
    """Forces a whole file system to disk: one call for thousands of files, where the system has it."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if syncfs(fd):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(fd)


def _lock_home(home: Home) -> int:
    """Locks out other servers; returns the descriptor that holds the lock."""
    fd = os.open(home.path / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise ReliveError(f"another server uses {home.path}; stop it first, or serve another folder") from None
    return fd
