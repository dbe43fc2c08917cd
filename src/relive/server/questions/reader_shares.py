"""Whose question is answered next, and which question makes room for others: decided from plain numbers.

Short questions never wait for long ones, whoever asks. A question is long once it took more than a short one needs, and
what counts against a token are its long questions only: many short ones are no fault.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LONG_CPU_S = 1.0  # of processor time: a question that took more is long
LONG_S = 5.0  # and so is one that took so long in all: its database may not answer, or there is no processor for it
HEAVY_S = 5.0  # a token whose long questions had a reader for so long, lately, is heavy
HALF_LIFE_S = 60.0  # what was used so long ago counts half
MAX_REMEMBERED = 1_000


class Decaying:
    """A sum of seconds for each token, which halves every minute."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}  # who → seconds, and when they were counted

    def __getitem__(self, who: str) -> float:
        seconds, at = self._sums.get(who, (0.0, 0.0))
        return float(seconds * 0.5 ** ((time.monotonic() - at) / HALF_LIFE_S))

    def add(self, who: str, seconds: float) -> None:
        self._sums[who] = self[who] + seconds, time.monotonic()
        if len(self._sums) > MAX_REMEMBERED:
            self._sums = {one: use for one, use in self._sums.items() if self[one] > 0.1}


@dataclass(frozen=True, slots=True)
class Reading:
    """A question that is being answered: whose it is, and what it took so far."""

    who: str
    cpu_s: float
    took_s: float
    is_left: bool = False  # its client has gone, which is cheap for the client and costs the server a process

    @property
    def is_long(self) -> bool:
        return self.is_left or self.cpu_s >= LONG_CPU_S or self.took_s >= LONG_S


class ReaderUse:
    """What each token has used of the readers lately, by the questions that have ended."""

    def __init__(self) -> None:
        self._cpu, self._long = Decaying(), Decaying()

    def add(self, ended: Reading) -> None:
        self._cpu.add(ended.who, ended.cpu_s)
        if ended.is_long:
            self._long.add(ended.who, ended.took_s)

    def cpu_s(self, who: str) -> float:
        """Returns the processor time of all questions."""
        return self._cpu[who]

    def long_s(self, who: str) -> float:
        """Returns for how long the long questions had a reader."""
        return self._long[who]


@dataclass(frozen=True, slots=True)
class ReaderShares:
    """The rules for so many readers, and the questions that they answer now."""

    readers: int
    use: ReaderUse
    running: Sequence[Reading]

    def choose_next(self, waiting: Iterable[str]) -> str | None:
        """Returns who is next: of those who have not taken their share, the one who has used least."""
        held = Counter(one.who for one in self.running)
        of_heavy = sum(count for who, count in held.items() if self.is_heavy(who))
        may = [
            who for who in waiting
            if held[who] < self._share(who) and not (self.is_heavy(who) and of_heavy >= max(1, self.readers // 4))
        ]  # fmt: skip
        return min(may, key=lambda who: (self.is_heavy(who), self.use.cpu_s(who)), default=None)

    def choose_end(self) -> int | None:
        """Returns which question makes room for one that waits, by its place in `running`.

        Long ones keep half of the readers; of more, that of the token goes whose long questions took most.
        """
        long = [number for number, one in enumerate(self.running) if one.is_long]
        if len(self.running) < self.readers or len(long) <= self.readers // 2:
            return None
        return max(long, key=lambda number: self._long_s(self.running[number].who))

    def is_heavy(self, who: str) -> bool:
        """Whether a token asks for so much that it has one reader at a time, and all such tokens a quarter."""
        return bool(who) and self._long_s(who) > HEAVY_S

    def _long_s(self, who: str) -> float:
        return self.use.long_s(who) + sum(one.took_s for one in self.running if one.who == who and one.is_long)

    @property
    def _half(self) -> int:
        return max(1, self.readers // 2)

    def _share(self, who: str) -> int:
        """Returns how many readers one token may have at once; on an open server there is only one asker."""
        if not who:
            return self.readers
        return 1 if self.is_heavy(who) else self._half
