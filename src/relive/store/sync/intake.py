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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.errors import ReliveError
from relive.store.durable_files import sync_file, sync_folder
from relive.store.home import Home, JournalName
from relive.store.journal import first_line, line_schema, mark_for_reindexing, record_heartbeat
from relive.store.sync.audit_log import AuditLog
from relive.store.sync.journal_range import (
    IntakePosition,
    JournalRange,
    RangeConflict,
    RangeGap,
    check_overlap,
    lines_file,
    slots_file,
    trim_to_new,
)
from relive.store.sync.redo_log import FrameHeader, RedoLog
from relive.store.sync.run_owners import NotOwner, RunOwners

MAX_LOG_BYTES = 64 << 20  # beyond it, the journals are forced to disk and the log is emptied
MAX_PENDING_BYTES = 64 << 20  # waiting for the disk; beyond it, clients are asked to retry
MAX_SINGLE_SYNCS = 16  # more files are forced to disk by one call for the whole file system
HEARTBEAT_S = 5.0


class IntakeBusy(ReliveError):
    """Too many bytes are waiting in memory for the disk."""


class StoreFull(ReliveError):
    """The disk is full or can't be written."""


_Queued = tuple[JournalRange, "Future[IntakePosition]"]


@dataclass(frozen=True, slots=True)
class _Pause:
    """Asks the thread to store everything before it, and to take nothing for a run from then on."""

    run: str
    future: Future[None]


class Intake:
    """Writes received ranges to a home. A context manager; a second one on the same home is refused."""

    def __init__(self, home: Home) -> None:
        home.create()
        self._home = home
        self._lock = _lock_home(home)
        self._log = RedoLog(home.path / "redo.log")
        self._owners = RunOwners(home.path)
        self.audit = AuditLog(home.path)
        self._dirty: set[Path] = set()  # files that only the redo log makes durable
        self._heartbeats: dict[str, float] = {}  # run → when its heartbeat was last recorded
        self._pending_bytes = 0
        self._pending_lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Queued | _Pause | None] = queue.SimpleQueue()
        self._paused: set[str] = set()  # runs whose files are being rewritten
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

    def pause(self, run: str) -> Future[None]:
        """Takes nothing for a run until `resume`; when the future is done, no other file has bytes of its lines."""
        future: Future[None] = Future()
        self._queue.put(_Pause(run, future))
        return future

    def resume(self, run: str) -> None:
        self._paused.discard(run)

    def is_paused(self, run: str) -> bool:
        """Whether the files of a run are being rewritten."""
        return run in self._paused

    def held(self, run: str, journal: JournalName) -> IntakePosition:
        """Returns how much of a journal is stored."""
        path = self._home.run_folder(run) / journal.stem
        return IntakePosition(file_size(slots_file(path)), file_size(lines_file(path)))

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
            self._process([queued for queued in batch if isinstance(queued, tuple)])
            for pause in (queued for queued in batch if isinstance(queued, _Pause)):
                self._begin_pause(pause)

    def _begin_pause(self, pause: _Pause) -> None:
        try:
            self._flush_journals()
        except OSError as error:
            pause.future.set_exception(StoreFull(f"{error.strerror} on the server; free some space there"))
        else:
            self._paused.add(pause.run)
            pause.future.set_result(None)

    def _process(self, batch: list[_Queued]) -> None:
        accepted: list[_Queued] = []
        ends: dict[tuple[str, JournalName], IntakePosition] = {}  # of journals whose bytes are accepted, not yet stored
        for received, future in batch:
            key = received.run, received.journal
            if key in ends and not _continues(received, ends[key]):  # it is compared with bytes, which must be on disk
                self._log_and_apply(accepted)
                accepted, ends = [], {}
            try:
                new = self._fit(received, ends.get(key))
            except (RangeGap, RangeConflict, NotOwner, IntakeBusy) as refusal:
                self._refuse(received, future, refusal)
                continue
            ends[key] = new.end
            accepted.append((new, future))
        self._log_and_apply(accepted)
        for received, _ in batch:
            with self._pending_lock:
                self._pending_bytes -= received.size_bytes

    def _fit(self, received: JournalRange, end: IntakePosition | None) -> JournalRange:
        """Returns what is new of a range; raises if its sender may not append, or if it does not fit what is stored."""
        if received.run in self._paused:
            raise IntakeBusy("the run is being rewritten; try again in a second")
        if received.sender is not None and (received.size_bytes or self._owners.owner(received.run)):
            project = self._project_of(received)
            self._owners.claim(received.run, received.journal, received.sender, project)
        if end is None:
            new = trim_to_new(received, self.held(received.run, received.journal))
            if new.size_bytes < received.size_bytes:
                check_overlap(received, self._home.run_folder(received.run) / received.journal.stem)
            return new
        return trim_to_new(received, end)

    def _project_of(self, received: JournalRange) -> str:
        """Returns the project of the run that a range belongs to; it is in the first line of every rank."""
        if received.project is not None:
            return received.project
        if self._owners.owner(received.run) is not None:
            return ""  # it is recorded with the owner
        for rank in (received.journal.rank, 0):
            header = first_line(self._home.run_folder(received.run) / JournalName(rank).stem)
            if isinstance(header, line_schema.RunStarted):
                return header.project
        return ""

    def _refuse(self, received: JournalRange, future: Future[IntakePosition], refusal: ReliveError) -> None:
        sender = received.sender
        if not isinstance(refusal, RangeGap | IntakeBusy):
            facts: dict[str, Any] = (
                {"file": refusal.file, "at": refusal.at} if isinstance(refusal, RangeConflict) else {}
            )
            self.audit.record(
                "conflict" if isinstance(refusal, RangeConflict) else "not-owner",
                token=sender.token if sender else "", run=received.run, name=sender.name if sender else "",
                address=sender.address if sender else "", journal=received.journal.stem, **facts,
            )  # fmt: skip
        self._answer(received, future, refusal)

    def _log_and_apply(self, accepted: list[_Queued]) -> None:
        if not accepted:
            return
        try:
            self._owners.save()  # before the bytes: a run that is here has its owner
            self._log.append((_frame_header(one), (one.slots, one.lines)) for one, _ in accepted if one.size_bytes)
        except OSError as error:
            for one, future in accepted:
                self._answer(one, future, StoreFull(f"{error.strerror} on the server; free some space there"))
            return
        self._apply_all(accepted)
        self.batches += 1
        if self._log.size_bytes > MAX_LOG_BYTES:
            with contextlib.suppress(OSError):  # the log stays, and this is tried again after the next batch
                self._flush_journals()

    def _apply_all(self, accepted: list[_Queued]) -> None:
        failed: set[tuple[str, JournalName]] = set()
        for one, future in accepted:
            try:
                if (one.run, one.journal) in failed:
                    raise OSError("the range before it could not be written")
                self._answer(one, future, self._apply(one))
            except OSError as error:
                failed.add((one.run, one.journal))
                self._answer(one, future, StoreFull(f"{error.strerror or error} on the server; free some space there"))

    def _answer(self, one: JournalRange, future: Future[IntakePosition], answer: IntakePosition | ReliveError) -> None:
        if isinstance(answer, IntakePosition):
            self.ranges += 1
            self.taken_bytes += one.size_bytes
            future.set_result(answer)
        else:
            self.failures += isinstance(answer, StoreFull)
            future.set_exception(answer)

    def _apply(self, one: JournalRange) -> IntakePosition:
        folder = self._home.run_folder(one.run)
        folder.mkdir(exist_ok=True)
        path = folder / one.journal.stem
        # Slots first: once the last line of a journal is stored, the values before it must be, too.
        for file, at, data in (
            (slots_file(path), one.slots_at, one.slots),
            (lines_file(path), one.lines_at, one.lines),
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
        return one.end

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
                (slots_file(path), header.slots_at, body[: header.slots_bytes]),
                (lines_file(path), header.lines_at, body[header.slots_bytes :]),
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


def _continues(received: JournalRange, end: IntakePosition) -> bool:
    return received.slots_at >= end.slots and received.lines_at >= end.lines


def _frame_header(one: JournalRange) -> FrameHeader:
    return FrameHeader(one.run, one.journal.stem, one.slots_at, len(one.slots), one.lines_at)


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
