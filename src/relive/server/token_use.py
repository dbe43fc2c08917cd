"""When each token was last used: kept in memory, and written once a minute at most. It may be lost."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import msgspec

from relive.store import atomic_write

SAVE_EVERY_S = 60.0
_FILE = "tokens.used.json"


class TokenUse:
    """The last use of each token of a store, in seconds since 1970."""

    def __init__(self, store: Path) -> None:
        self._path = store / _FILE
        self._last_used_s = last_use(store)
        self._saved_s = time.monotonic()
        self._is_changed = False

    def note(self, token: str) -> None:
        """Records that a token was used now."""
        self._last_used_s[token] = int(time.time())
        self._is_changed = True
        if time.monotonic() - self._saved_s > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        self._saved_s = time.monotonic()
        if self._is_changed:
            self._is_changed = False
            with contextlib.suppress(OSError):  # a full disk: requests are served all the same
                atomic_write(self._path, msgspec.json.encode(self._last_used_s), durable=False, permissions=0o600)


def last_use(store: Path) -> dict[str, int]:
    """Returns when each token was last used, as far as it is known."""
    try:
        return msgspec.json.decode((store / _FILE).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}
