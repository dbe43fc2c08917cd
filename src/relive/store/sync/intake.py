"""How ranges of journals are taken in: each byte once, in order, on disk before anybody is told so.

One thread takes them all. It looks how much of a journal is there, cuts off what it has already, writes what is new to
the redo log of the whole batch, forces that to disk, appends to the journals, and answers. So an answer costs a share
of one fsync, however many journals there are; the journals themselves are forced to disk when the log is full.
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
from relive.store.home import Home, JournalName
from relive.store.journal import read_again, record_heartbeat
from relive.store.sync.redo_log import Head, RedoLog

LOG_BYTES = 64 << 20  # then the journals are forced to disk, and the log begins anew
PENDING_BYTES = 64 << 20  # what may wait for the disk; who comes then is asked to come again
FEW_FILES = 16  # more are forced to disk by one call for the whole file system
NOTE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class IntakePosition:
    """How many bytes of a journal are there."""

    slots: int
    lines: int


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a journal, and where in its files they belong. `final` says that the journal ends with them."""

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
    """A range that does not join on to what is there."""

    def __init__(self, held: IntakePosition) -> None:
        super().__init__(f"bytes before these are missing; go on from slots {held.slots} and lines {held.lines}")
        self.held = held


class Busy(ReliveError):
    """More is waiting for the disk than memory should hold."""


class StoreFull(ReliveError):
    """The disk takes no more."""


def fit(given: Range, held: IntakePosition) -> Range:
    """The part of a range that is new; it may be empty. A range that leaves a gap is refused."""
    if given.slots_at > held.slots or given.lines_at > held.lines:
        raise RangeGap(held)
    return replace(
        given,
        slots_at=held.slots,
        slots=given.slots[held.slots - given.slots_at :],
        lines_at=held.lines,
        lines=given.lines[held.lines - given.lines_at :],
    )


class Intake:
    """Takes ranges into a home. A context manager; only one may be open on a home, and a second one is refused."""

    def __init__(self, home: Home) -> None:
        home.create()
        self._home = home
        self._lock = _only_one(home)
        self._log = RedoLog(home.path / "redo.log")
        self._dirty: set[Path] = set()  # what the log still vouches for
        self._noted: dict[str, float] = {}
        self._pending_bytes = 0
        self._counting = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Range, Future[IntakePosition]] | None] = queue.SimpleQueue()
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

    def submit(self, given: Range) -> Future[IntakePosition]:
        """Take a range; the future has its answer when the bytes are safe."""
        with self._counting:
            if self._pending_bytes and self._pending_bytes + given.size_bytes > PENDING_BYTES:
                raise Busy("too much is waiting for the disk; come again in a second")
            self._pending_bytes += given.size_bytes
        future: Future[IntakePosition] = Future()
        self._queue.put((given, future))
        return future

    def held(self, run: str, journal: JournalName) -> IntakePosition:
        path = self._home.run_folder(run) / journal.stem
        return IntakePosition(_size(_slots(path)), _size(_lines(path)))

    def close(self) -> None:
        """Take what was submitted, force everything to disk, and let another one have the home."""
        self._queue.put(None)
        self._thread.join()
        self._settle()
        self._log.close()
        os.close(self._lock)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        open_ = True
        while open_:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    batch.append(self._queue.get_nowait())
            open_ = None not in batch
            self._take([one for one in batch if one is not None])

    def _take(self, batch: list[tuple[Range, Future[IntakePosition]]]) -> None:
        held: dict[tuple[str, JournalName], IntakePosition] = {}
        fitting: list[tuple[Range, Future[IntakePosition]]] = []
        for given, future in batch:
            key = given.run, given.journal
            try:
                fitted = fit(given, held.get(key) or self.held(*key))
            except RangeGap as gap:
                self._answer(given, future, gap)
                continue
            held[key] = IntakePosition(fitted.slots_at + len(fitted.slots), fitted.lines_at + len(fitted.lines))
            fitting.append((given, future) if fitted is given else (fitted, future))
        self._log_and_apply(fitting)
        for given, _ in batch:
            with self._counting:
                self._pending_bytes -= given.size_bytes

    def _log_and_apply(self, fitting: list[tuple[Range, Future[IntakePosition]]]) -> None:
        try:
            self._log.append((_head(one), (one.slots, one.lines)) for one, _ in fitting if one.size_bytes)
        except OSError as error:
            for one, future in fitting:
                self._answer(one, future, StoreFull(f"{error.strerror} on the server; free some space there"))
            return
        failed: set[tuple[str, JournalName]] = set()
        for one, future in fitting:
            try:
                if (one.run, one.journal) in failed:
                    raise OSError("the range before it could not be written")
                self._answer(one, future, self._apply(one))
            except OSError as error:
                failed.add((one.run, one.journal))
                self._answer(one, future, StoreFull(f"{error.strerror or error} on the server; free some space there"))
        self.batches += 1
        if self._log.size_bytes > LOG_BYTES:
            with contextlib.suppress(OSError):  # then the log stays, and is tried again after the next batch
                self._settle()

    def _answer(self, one: Range, future: Future[IntakePosition], answer: IntakePosition | ReliveError) -> None:
        if isinstance(answer, IntakePosition):
            self.ranges += 1
            self.taken_bytes += one.size_bytes
            future.set_result(answer)
        else:
            self.failures += not isinstance(answer, RangeGap)
            future.set_exception(answer)

    def _apply(self, one: Range) -> IntakePosition:
        folder = self._home.run_folder(one.run)
        folder.mkdir(exist_ok=True)
        path = folder / one.journal.stem
        # Slots first: a journal whose last line is there must have the values before it.
        for file, at, data in ((_slots(path), one.slots_at, one.slots), (_lines(path), one.lines_at, one.lines)):
            if data or not file.exists():
                _append(file, at, data)
                self._dirty.add(file)
        now = time.monotonic()
        if now - self._noted.get(one.run, -NOTE_EVERY_S) >= NOTE_EVERY_S:
            self._noted[one.run] = now
            record_heartbeat(folder)
        if one.final:
            read_again(folder)
        return IntakePosition(one.slots_at + len(one.slots), one.lines_at + len(one.lines))

    # --- durability ---------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Force the journals to disk; the log has done its duty then."""
        files = [file for file in self._dirty if file.exists()]  # a run may have been removed meanwhile
        if len(files) > FEW_FILES:
            _sync_file_system(self._home.path)
        else:
            folders = {file.parent for file in files}
            for path in (*files, *folders, self._home.runs):
                sync(path)
        self._dirty.clear()
        self._log.clear()

    def _recover(self) -> None:
        """After a crash: every range of the log goes to its place again, and what comes after them goes."""
        ends: dict[Path, int] = {}
        for head, body in self._log.frames():
            path = self._home.run_folder(head.run) / head.stem
            parts = (
                (_slots(path), head.slots_at, body[: head.slots_bytes]),
                (_lines(path), head.lines_at, body[head.slots_bytes :]),
            )
            for file, at, data in parts:
                if _size(file) >= at and (at == 0 or file.exists()):  # else the run was removed since
                    file.parent.mkdir(exist_ok=True)
                    _append(file, at, data)
                    ends[file] = at + len(data)
            if path.parent.is_dir():
                record_heartbeat(path.parent)
        for file, end in ends.items():
            os.truncate(file, end)
        self._dirty.update(ends)
        self._settle()


def _head(one: Range) -> Head:
    return Head(one.run, one.journal.stem, one.slots_at, len(one.slots), one.lines_at)


def _slots(path: Path) -> Path:
    return path.with_name(path.name + ".slots")


def _lines(path: Path) -> Path:
    return path.with_name(path.name + ".lines")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _append(path: Path, at: int, data: bytes | memoryview) -> None:
    """Write all of it, or leave the file as it was."""
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


def sync(path: Path) -> None:
    """Force a file to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_file_system(path: Path) -> None:
    """One call for thousands of files, where the system has it."""
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


def _only_one(home: Home) -> int:
    fd = os.open(home.path / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise ReliveError(f"another server has {home.path}; stop it first, or serve another folder") from None
    return fd
