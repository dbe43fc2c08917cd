"""Durable file writes: the bytes are on disk before the name exists, and the name before the call returns."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_COUNTER = itertools.count()
PARTIAL = ".partial"


@contextlib.contextmanager
def open_atomically(target: Path, *, durable: bool = True, permissions: int = 0o666) -> Iterator[BinaryIO]:
    """Opens a file that gets its name when the block ends without an error; until then `target` stays as it was.

    `durable=False` leaves out fsync: for derived files, which may be lost to a power cut but are never half written.
    """
    # No two writers share a temporary file: not two processes, two threads, or a thread and a signal handler.
    unique = f"{os.getpid()}.{threading.get_ident()}.{next(_COUNTER)}"
    partial = target.with_name(f".{target.name}.{unique}{PARTIAL}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, permissions)
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(descriptor)
        partial.rename(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(target.parent)


def atomic_write(target: Path, data: bytes, *, durable: bool = True, permissions: int = 0o666) -> None:
    """Writes a whole file: a reader, and a crash at any moment, meets the old content or the new one."""
    with open_atomically(target, durable=durable, permissions=permissions) as file:
        file.write(data)


def publish(partial: Path, target: Path) -> None:
    """Gives a finished file its name, durably."""
    sync_file(partial)
    partial.rename(target)
    sync_folder(target.parent)


def sync_file(path: Path) -> None:
    """Forces the content of a file to disk."""
    _sync(path)


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to disk."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
