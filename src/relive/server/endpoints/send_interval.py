"""How often each process should send, so that a fleet of any size makes about the same number of requests."""

from __future__ import annotations

import time

from relive.store import JournalName

CANONICAL_A_S = 250  # ranges a second from all ranks 0 together: what people look at
OTHERS_A_S = 50  # and from all other ranks and processes
WINDOW_S = 60.0
LONGEST_S = 60.0  # well below the silence after which a process is taken for dead


class Pacing:
    """Counts who sends. Who was not heard of for a minute or two does not count."""

    def __init__(self) -> None:
        self._seen: tuple[set[tuple[str, JournalName]], set[tuple[str, JournalName]]] = (set(), set())
        self._before: tuple[int, int] = (0, 0)
        self._until = time.monotonic() + WINDOW_S

    def pause_s(self, run: str, journal: JournalName) -> float:
        """How long the sender of this journal should wait before it sends again."""
        if time.monotonic() > self._until:
            self._before, self._seen = (len(self._seen[0]), len(self._seen[1])), (set(), set())
            self._until = time.monotonic() + WINDOW_S
        is_other = bool(journal.rank or journal.process)
        self._seen[is_other].add((run, journal))
        senders = max(len(self._seen[is_other]), self._before[is_other])
        return min(senders / (OTHERS_A_S if is_other else CANONICAL_A_S), LONGEST_S)
