"""How often each process should send, so that the request rate stays bounded for a fleet of any size."""

from __future__ import annotations

import time

from relive.store import JournalName

CANONICAL_PER_S = 250  # ranges per second from all ranks 0 together, which people watch live
OTHERS_PER_S = 50  # ranges per second from all other ranks and processes
WINDOW_S = 60.0
MAX_INTERVAL_S = 60.0  # well below the silence after which a process counts as dead


class SendInterval:
    """Counts active senders; one that has been silent for one to two windows no longer counts."""

    def __init__(self) -> None:
        self._seen: tuple[set[tuple[str, JournalName]], set[tuple[str, JournalName]]] = (set(), set())
        self._previous_counts: tuple[int, int] = (0, 0)
        self._window_end_s = time.monotonic() + WINDOW_S

    def pause_s(self, run: str, journal: JournalName) -> float:
        """Returns how long the sender of this journal should wait before it sends again."""
        if time.monotonic() > self._window_end_s:
            self._previous_counts, self._seen = (len(self._seen[0]), len(self._seen[1])), (set(), set())
            self._window_end_s = time.monotonic() + WINDOW_S
        is_other = bool(journal.rank or journal.process)
        self._seen[is_other].add((run, journal))
        senders = max(len(self._seen[is_other]), self._previous_counts[is_other])
        return min(senders / (OTHERS_PER_S if is_other else CANONICAL_PER_S), MAX_INTERVAL_S)
