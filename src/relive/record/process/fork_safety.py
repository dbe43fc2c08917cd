"""Makes forks safe beside relive's threads: a fork waits for their imports, and does not warn because of them."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from types import TracebackType

MAX_FORK_WAIT_S = 5.0  # imports take milliseconds; after this time a fork goes ahead
THREAD_PREFIX = "relive-"  # every thread of relive has a name that starts with this


class _ImportLock:
    """Held during imports on relive's threads: a child forked meanwhile would wait for the import lock forever."""

    def __init__(self) -> None:
        self.times = 0  # how often the lock was held
        self._lock = threading.Lock()
        self._forking = threading.local()
        os.register_at_fork(before=self._acquire, after_in_parent=self._release, after_in_child=self._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.times += 1
        self._lock.release()

    def _acquire(self) -> None:
        self._forking.holds = self._lock.acquire(timeout=MAX_FORK_WAIT_S)

    def _release(self) -> None:
        if self._forking.holds:
            self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


class _ForkWarningFilter:
    """Suppresses the warning of Python 3.12 and later about a fork in a process with threads.

    Only if all threads are relive's: without relive the script would not be warned, and children do not need them.
    """

    MESSAGE = "This process .* is multi-threaded, use of fork"

    def __init__(self) -> None:
        self._entry: tuple[object, ...] | None = None
        if sys.version_info >= (3, 12):
            os.register_at_fork(before=self._begin, after_in_child=self.end)

    def _begin(self) -> None:
        self.end()
        if _has_only_relive_threads():
            warnings.filterwarnings("ignore", self.MESSAGE, DeprecationWarning)
            self._entry = warnings.filters[0]

    def end(self) -> None:
        """Removes the filter. Called some time after the fork, since Python warns after all fork hooks have run."""
        entry, self._entry = self._entry, None
        if entry is not None and entry in warnings.filters:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _has_only_relive_threads() -> bool:
    """Whether all threads but the current one are relive's."""
    ours = sum(thread.name.startswith(THREAD_PREFIX) for thread in threading.enumerate())
    try:
        return len(os.listdir("/proc/self/task")) == ours + 1
    except OSError:  # not Linux: there Python counts only the threads it started
        return threading.active_count() == ours + 1


import_lock = _ImportLock()
fork_warning_filter = _ForkWarningFilter()
