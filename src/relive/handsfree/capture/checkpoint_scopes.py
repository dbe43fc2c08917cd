"""Decides which main loops get checkpoints: not a loop that is entered often and ends quickly."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

MIN_ENTRIES = 8
SHORT_S = 0.5  # on average; such a loop is usually part of a training loop that was not recognized


class CheckpointScopes:
    """Counts how often each main loop is entered, and measures how long it takes."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, float]] = {}
        self.first_begun: float | None = None  # when the first main loop began

    def is_worth_it(self, name: str) -> bool:
        """Whether to take checkpoints in this loop."""
        count, total_s = self._entries.get(name, (0, 0.0))
        return count < MIN_ENTRIES or total_s / count > SHORT_S

    @contextlib.contextmanager
    def measured(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        if self.first_begun is None:
            self.first_begun = begun
        try:
            yield
        finally:
            count, total_s = self._entries.get(name, (0, 0.0))
            self._entries[name] = count + 1, total_s + time.monotonic() - begun


scopes = CheckpointScopes()
