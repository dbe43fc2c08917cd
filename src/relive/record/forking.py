"""A fork waits while a thread of ours loads modules: its child would wait for a half loaded one for ever."""

from __future__ import annotations

import os
import threading
from types import TracebackType

PATIENCE_S = 5.0  # loading takes milliseconds; a fork that had to wait longer would rather take the risk


class _Loading:
    """Hold this around imports on a thread that the user doesn't know of."""

    def __init__(self) -> None:
        self.times = 0  # how often something was loaded
        self._lock = threading.Lock()
        self._forking = threading.local()
        os.register_at_fork(before=self._wait, after_in_parent=self._go_on, after_in_child=self._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.times += 1
        self._lock.release()

    def _wait(self) -> None:
        self._forking.holds = self._lock.acquire(timeout=PATIENCE_S)

    def _go_on(self) -> None:
        if self._forking.holds:
            self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


loading = _Loading()
