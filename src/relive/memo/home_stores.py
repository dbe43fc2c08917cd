"""Which store a call uses: the one of the home that its run is recorded to, opened once in a process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from relive.memo.sqlite_memoizer import Sqlite
from relive.record import Driver, home_here, session
from relive.record.provenance import FingerprintCache

# `os.environ` iterations names and values into bytes and back on every look, which is felt on the path of every hit.
_raw = getattr(os.environ, "_data", {})
_HOME, _OFF = (os.fsencode(name) for name in ("RELIVE_HOME", "RELIVE_OFF"))
_Marks = tuple[bytes | None, bytes | None, Driver | None]


class Homes:
    """The stores of this process, by home."""

    def __init__(self) -> None:
        self._stores: dict[Path, Sqlite] = {}
        self._fingerprints: dict[Path, FingerprintCache] = {}
        self._current: tuple[_Marks, Sqlite | None] | None = None
        self.renew()

    def renew(self) -> None:
        """Also in a forked child: who held the lock is not there to let it go."""
        self._lock = threading.RLock()

    def store(self) -> Sqlite | None:
        """The store in force; None when relive is off. We look around again only when something moved."""
        marks = _raw.get(_HOME), _raw.get(_OFF), session.driver
        current = self._current
        if current is None or current[0] != marks:
            with self._lock:
                self._current = current = marks, self._look()
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

    def _look(self) -> Sqlite | None:
        home, settings = home_here()
        if settings.off:
            return None
        if home.path not in self._stores:
            home.create()
            self._stores[home.path] = Sqlite(home, max_bytes=settings.memo_bytes)
        return self._stores[home.path]


HOMES = Homes()
os.register_at_fork(after_in_child=HOMES.renew)
