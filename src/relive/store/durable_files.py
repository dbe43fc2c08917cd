"""Durable file writes: the bytes are on disk before the name exists, and the name before the call returns; seals."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from relive.errors import Damaged

_COUNTER = itertools.count()
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_SEAL_MARK = b"\n# xxh3 "
PARTIAL_PATTERN = r"\..+\.\d+\.\d+\.\d+\.partial"  # of the names that an interrupted write leaves behind


@contextlib.contextmanager
def stage(target: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yields a path to write to; what is there gets the name `target` when the block ends without an error.

    `durable=False` leaves out fsync: for derived files, which may be lost to a power cut but are never half written.
    """
    partial = _partial_path(target)
    try:
        yield partial
        if durable:
            publish(partial, target)
        else:
            partial.rename(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def open_atomically(target: Path, *, durable: bool = True, permissions: int = 0o666) -> Iterator[BinaryIO]:
    """Opens a file that gets its name when the block ends without an error; until then `target` stays as it was."""
    with stage(target, durable=durable) as partial, _create(partial, permissions) as file:
        yield file
        file.close()  # flushes the buffer before the bytes are forced to disk


def atomic_write(target: Path, data: bytes, *, durable: bool = True, permissions: int = 0o666) -> None:
    """Writes a whole file: a reader, and a crash at any moment, meets the old content or the new one."""
    with open_atomically(target, durable=durable, permissions=permissions) as file:
        file.write(data)


def write_sealed(target: Path, data: bytes, *, durable: bool = True, permissions: int = 0o666) -> None:
    """Writes a whole file that ends in a line with the checksum of what precedes it."""
    atomic_write(target, data + _SEAL_MARK + _seal(data), durable=durable, permissions=permissions)


def read_sealed(path: Path) -> bytes:
    """Returns what `write_sealed` wrote, or the whole content of a file from before there were seals.

    Raises `Damaged` if the content is not what was written; the caller names the file and the remedy.
    """
    raw = path.read_bytes()
    data, mark, seal = raw.rpartition(_SEAL_MARK)
    if not mark:
        return raw
    if seal != _seal(data):
        raise Damaged("its checksum does not fit its content")
    return data


def _seal(data: bytes) -> bytes:
    import xxhash  # here, because recording a run imports this module and does not need it

    return b"%016x\n" % xxhash.xxh3_64_intdigest(data)


def write_once(target: Path, data: bytes, *, permissions: int = 0o666) -> None:
    """Writes a whole file durably, unless it exists: of several writers at once, one succeeds."""
    partial = _partial_path(target)
    try:
        with _create(partial, permissions) as file:
            file.write(data)
        sync_file(partial)
        _link_or_rename(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(target.parent)


def _link_or_rename(partial: Path, target: Path) -> None:
    """Gives a file a name that does not exist yet; a file system without hard links can't rule out that it does."""
    try:
        os.link(partial, target)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not target.exists():
            partial.rename(target)


def publish(partial: Path, target: Path) -> None:
    """Gives a finished file its name, durably."""
    sync_file(partial)
    partial.rename(target)
    sync_folder(target.parent)


def make_folder(folder: Path) -> None:
    """Creates a folder and its missing parents, durably; does nothing if it exists."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_file(path: Path) -> None:
    """Forces the content of a file to disk."""
    _sync(path)


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to disk."""
    _sync(folder)


def _partial_path(target: Path) -> Path:
    # No two writers share a temporary file: not two processes, two threads, or a thread and a signal handler.
    unique = f"{os.getpid()}.{threading.get_ident()}.{next(_COUNTER)}"
    return target.with_name(f".{target.name}.{unique}.partial")


def _create(path: Path, permissions: int) -> BinaryIO:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, permissions), "wb")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_at(path: Path, at: int, count: int) -> bytes:
    """Returns up to `count` bytes of a file from an offset on; nothing if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, count, at)
    finally:
        os.close(fd)
