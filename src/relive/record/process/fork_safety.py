"""What a fork has to do with our threads: it waits while they load modules, and isn't warned of because of them."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from types import TracebackType

PATIENCE_S = 5.0  # loading takes milliseconds; a fork that had to wait longer would rather take the risk
THREADS = "relive-"  # how the names of our threads begin


class _Loading:
    """Hold this around imports on a thread of ours: a child that is forked meanwhile would wait for them for ever."""

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


class _Hush:
    """Python 3.12 and later warn of a fork in a process with threads, which may be an error where warnings are.

    When all of them are ours, the script would not have been warned without us: children can do without them.
    """

    MESSAGE = "This process .* is multi-threaded, use of fork"

    def __init__(self) -> None:
        self._entry: tuple[object, ...] | None = None
        if sys.version_info >= (3, 12):
            os.register_at_fork(before=self._begin, after_in_child=self.end)

    def _begin(self) -> None:
        self.end()
        if _all_ours():
            warnings.filterwarnings("ignore", self.MESSAGE, DeprecationWarning)
            self._entry = warnings.filters[0]

    def end(self) -> None:
        """Called some time after the fork: Python warns only when all its hooks are through."""
        entry, self._entry = self._entry, None
        if entry is not None and entry in warnings.filters:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _all_ours() -> bool:
    ours = sum(thread.name.startswith(THREADS) for thread in threading.enumerate())
    try:
        return len(os.listdir("/proc/self/task")) == ours + 1
    except OSError:  # no Linux: Python counts its own threads there
        return threading.active_count() == ours + 1


loading = _Loading()
hush = _Hush()
