"""What was refused on a served store, and who tried: an append-only file, bounded in size and in lines per minute."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

AUDIT_FILE = "audit.lines"
OLD_AUDIT_FILE = "audit.old.lines"
MAX_AUDIT_BYTES = 16 << 20  # then the file becomes the old one, and the old one is dropped
REPEATED_S = 60.0  # the same event of the same token about the same run is one line in this time
_MAX_REMEMBERED = 10_000


class AuditLog:
    """The audit log of a store, for any thread. Losing a line to a full disk never fails a request."""

    def __init__(self, store: Path) -> None:
        self._path = store / AUDIT_FILE
        self._old_path = store / OLD_AUDIT_FILE
        self._lock = threading.Lock()
        self._recent: dict[tuple[str, str, str], float] = {}

    def record(self, event: str, *, token: str = "", run: str = "", always: bool = False, **facts: Any) -> None:
        """Adds a line, unless the same was recorded within the last minute and not `always`."""
        key, now = (event, token, run), time.monotonic()
        with self._lock, contextlib.suppress(OSError):
            if not always and now - self._recent.get(key, -REPEATED_S) < REPEATED_S:
                return
            if len(self._recent) >= _MAX_REMEMBERED:
                self._recent.clear()
            self._recent[key] = now
            self._append({"v": 1, "t": time.time_ns(), "event": event, "token": token, "run": run, **facts})

    def _append(self, line: dict[str, Any]) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, msgspec.json.encode(line) + b"\n")
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        if size > MAX_AUDIT_BYTES:
            self._path.rename(self._old_path)


def read_audit(store: Path) -> list[dict[str, Any]]:
    """Returns the lines of the audit log, oldest first; torn ones are left out."""
    found = []
    for name in (OLD_AUDIT_FILE, AUDIT_FILE):
        with contextlib.suppress(FileNotFoundError):
            for row in (store / name).read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError):
                    found.append(msgspec.json.decode(row, type=dict[str, Any]))
    return found
