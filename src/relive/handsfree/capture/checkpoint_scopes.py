"""Which loops are worth a scope of checkpoints: the same one, entered often and over in no time, is not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

MIN_ENTRIES = 8
SHORT_S = 0.5  # on average; such a loop is part of another that was not seen to train


class CheckpointScopes:
    """How often each main loop was entered, and how long that took."""

    def __init__(self) -> None:
        self._entered: dict[str, tuple[int, float]] = {}
        self.first_begun: float | None = None  # when the first main loop began

    def is_worth_it(self, name: str) -> bool:
        times, total_s = self._entered.get(name, (0, 0.0))
        return times < MIN_ENTRIES or total_s / times > SHORT_S

    @contextlib.contextmanager
    def measured(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        if self.first_begun is None:
            self.first_begun = begun
        try:
            yield
        finally:
            times, total_s = self._entered.get(name, (0, 0.0))
            self._entered[name] = times + 1, total_s + time.monotonic() - begun


scopes = CheckpointScopes()
