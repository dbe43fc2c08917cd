"""Who computes a key just now: one thread of one process on this machine, and another as soon as that one dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from pathlib import Path

_FIRST_WAIT_S = 0.001
_LAST_WAIT_S = 0.05


class Flights:
    """Keys that are being computed. Across processes by locks on single bytes of a file, at the place of the key.

    Such a lock ends with its process, is not inherited by forked children, and leaves nothing behind.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path  # None: this process only
        self._fd: int | None = None
        self.renew()

    def renew(self) -> None:
        """Also in a forked child: what its parent computes is not computed here."""
        self._holders: dict[str, object] = {}
        self._changed = threading.Condition()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def take(self, key: str) -> None:
        """Wait until the key is ours."""
        wait_s = _FIRST_WAIT_S
        while not self._try_take(key, threading.get_ident()):
            with self._changed:
                if key in self._holders:  # of this process: it tells when it is done
                    self._changed.wait(_LAST_WAIT_S)
                    continue
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LAST_WAIT_S)

    async def take_soon(self, key: str) -> None:
        """The same for a coroutine: others go on meanwhile."""
        wait_s = _FIRST_WAIT_S
        while not self._try_take(key, _task()):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LAST_WAIT_S)

    def is_held_here(self, key: str) -> bool:
        """Is this thread or task computing the key further up? Then the function calls itself."""
        return self._holders.get(key, self) in (threading.get_ident(), _task())

    def _try_take(self, key: str, holder: object) -> bool:
        with self._changed:
            if key in self._holders or not self._lock(key):
                return False
            self._holders[key] = holder
            return True

    def give_back(self, key: str) -> None:
        with self._changed:
            self._holders.pop(key, None)
            if self._fd is not None:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _place_of(key))
            self._changed.notify_all()

    def _lock(self, key: str) -> bool:
        if self._path is None:
            return True
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place_of(key))
        except (BlockingIOError, PermissionError):
            return False
        return True


def _place_of(key: str) -> int:
    return int(key[:15], 16)


def _task() -> object:
    """The running task; None outside of an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
