"""Single flight: at most one thread on this machine computes a key; if its process dies, another takes over."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from pathlib import Path

_MIN_WAIT_S = 0.001
_MAX_WAIT_S = 0.05


class Flights:
    """The keys being computed. Across processes, a key is held by a POSIX lock on one byte of a file.

    Such a lock ends with its process, is not inherited by forked children, and needs no cleanup.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path  # None: this process only
        self._fd: int | None = None
        self.reset()

    def reset(self) -> None:
        """Clears all state; a forked child needs this because it does not compute what its parent computes."""
        self._holders: dict[str, object] = {}
        self._changed = threading.Condition()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def acquire(self, key: str) -> None:
        """Waits until this thread holds the key."""
        wait_s = _MIN_WAIT_S
        while not self._try_acquire(key, threading.get_ident()):
            with self._changed:
                if key in self._holders:  # held in this process: its release notifies us
                    self._changed.wait(_MAX_WAIT_S)
                    continue
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)

    async def acquire_async(self, key: str) -> None:
        """Waits until this task holds the key, without blocking the event loop."""
        wait_s = _MIN_WAIT_S
        while not self._try_acquire(key, _current_task()):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)

    def is_held_by_caller(self, key: str) -> bool:
        """Whether this thread or task already computes the key, which means that the function calls itself."""
        return self._holders.get(key, self) in (threading.get_ident(), _current_task())

    def _try_acquire(self, key: str, holder: object) -> bool:
        with self._changed:
            if key in self._holders or not self._try_lock_file(key):
                return False
            self._holders[key] = holder
            return True

    def release(self, key: str) -> None:
        with self._changed:
            self._holders.pop(key, None)
            if self._fd is not None:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _lock_offset(key))
            self._changed.notify_all()

    def _try_lock_file(self, key: str) -> bool:
        if self._path is None:
            return True
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _lock_offset(key))
        except (BlockingIOError, PermissionError):
            return False
        return True


def _lock_offset(key: str) -> int:
    return int(key[:15], 16)


def _current_task() -> object:
    """Returns the running task, or None outside of an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
