"""Which memo store a call uses: that of the home its run is recorded to, opened once per process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from relive.memo.sqlite_memoizer import Sqlite
from relive.record import Driver, current_home, session
from relive.record.provenance import FingerprintCache

# `os.environ` encodes names and decodes values on every lookup, which is too slow for the path of every hit.
_environ_bytes = getattr(os.environ, "_data", {})
_HOME_VARIABLE, _OFF_VARIABLE = (os.fsencode(name) for name in ("RELIVE_HOME", "RELIVE_OFF"))
_CacheKey = tuple[bytes | None, bytes | None, Driver | None]


class HomeStores:
    """The memo stores of this process, by home."""

    def __init__(self) -> None:
        self._stores: dict[Path, Sqlite] = {}
        self._fingerprints: dict[Path, FingerprintCache] = {}
        self._current: tuple[_CacheKey, Sqlite | None] | None = None
        self.reset_lock()

    def reset_lock(self) -> None:
        """Replaces the lock; a forked child needs this because the thread that held it does not exist there."""
        self._lock = threading.RLock()

    def store(self) -> Sqlite | None:
        """Returns the current store, or None if relive is off; cached until a variable or the driver changes."""
        key = _environ_bytes.get(_HOME_VARIABLE), _environ_bytes.get(_OFF_VARIABLE), session.driver
        current = self._current
        if current is None or current[0] != key:
            with self._lock:
                self._current = current = key, self._open_current()
        return current[1]

    def fingerprints(self) -> FingerprintCache | None:
        store = self.store()
        if store is None:
            return None
        path = store.home.path / "fingerprints.sqlite"
        with self._lock:
            if path not in self._fingerprints:
                self._fingerprints[path] = FingerprintCache(path)
            return self._fingerprints[path]

    def _open_current(self) -> Sqlite | None:
        home, settings = current_home()
        if settings.off:
            return None
        if home.path not in self._stores:
            home.create()
            self._stores[home.path] = Sqlite(home, max_bytes=settings.memo_bytes)
        return self._stores[home.path]


HOMES = HomeStores()
os.register_at_fork(after_in_child=HOMES.reset_lock)
