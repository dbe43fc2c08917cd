"""A thread that syncs a journal to disk once a second and updates its modification time as a heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from relive.record.process.fork_safety import fork_warning_filter
from relive.record.process.user_warnings import warn_once
from relive.store.journal import Journal

HEARTBEAT_S = 30.0


class JournalSyncer:
    """Syncs one journal until stopped; `before_sync` is called each time, and may add lines."""

    def __init__(self, journal: Journal, every_s: float, before_sync: Callable[[], None] | None = None) -> None:
        self._before_sync = before_sync
        self._journal = journal
        self._every_s = max(every_s, 0.05)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relive-sync", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._before_sync = None  # it refers to the run, which refers to this: files must close without a collector
        fork_warning_filter.end()

    def _work(self) -> None:
        touched = time.monotonic()
        while not self._stop.wait(self._every_s):
            fork_warning_filter.end()
            try:
                if self._before_sync is not None:
                    self._before_sync()
                if self._journal.is_deleted():
                    self._report_deleted()
                    return
                self._journal.sync()
                if time.monotonic() - touched > HEARTBEAT_S:
                    self._journal.touch()
                    touched = time.monotonic()
            except OSError as error:
                warn_once(
                    "sync-failed",
                    f"{error}; recording goes on, but a crash of the machine may lose values; check the disk",
                )

    def _report_deleted(self) -> None:
        warn_once(
            "home-removed",
            f"{self._journal.path.parent} was removed while the run was recorded; what was recorded of it is gone, and"
            " nothing more can be kept; start the run again",
        )
