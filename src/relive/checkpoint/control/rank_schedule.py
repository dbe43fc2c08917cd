"""At which moments ranks take their checkpoints: the same ones, although none of them waits for another.

Rank 0 decides one iteration ahead, and appends it to a file beside the journals; the others look there when an
iteration ends. In a training whose ranks exchange anything, none of them ends an iteration that rank 0 has not begun.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

FILE = "moments"
_PART = 1 << 16


class RankSchedule(Protocol):
    """Whether a checkpoint is taken where it could be: `block` is a kind of place, `worth` what a rank alone thinks."""

    def is_awaited(self, block: str, iteration: int) -> bool: ...
    def is_due(self, block: str, iteration: int, worth: Callable[[], bool]) -> bool: ...
    def look_ahead(self, block: str, iteration: int, worth: Callable[[], bool]) -> None: ...
    def begin_anew(self) -> None: ...
    def close(self) -> None: ...


class SingleRankSchedule:
    """The moments of a process that stands alone: whenever it is worth it."""

    def is_awaited(self, block: str, iteration: int) -> bool:
        return False

    def is_due(self, block: str, iteration: int, worth: Callable[[], bool]) -> bool:
        return worth()

    def look_ahead(self, block: str, iteration: int, worth: Callable[[], bool]) -> None:
        """Nobody wants to know."""

    def begin_anew(self) -> None:
        """Nothing was agreed on."""

    def close(self) -> None:
        """Nothing is open."""


class _SharedSchedule:
    """What was agreed on: from which iterations on the next checkpoints of a block are taken.

    In the first iteration nobody can know yet, so each rank decides for itself, and mostly alike.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._next: dict[str, list[int]] = {}  # several, where rank 0 is ahead

    def is_awaited(self, block: str, iteration: int) -> bool:
        self._hear()
        return any(iteration >= known for known in self._next.get(_word(block), ()))

    def is_due(self, block: str, iteration: int, worth: Callable[[], bool]) -> bool:
        if iteration == 0:
            return worth()
        if not self.is_awaited(block, iteration):
            return False
        self._next[_word(block)] = [known for known in self._next[_word(block)] if known > iteration]
        return True

    def begin_anew(self) -> None:
        """A main loop is over, and what was to come in it does not."""
        self._next.clear()

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _hear(self) -> None:
        """Nothing new by itself."""


class LeaderSchedule(_SharedSchedule):
    """Those of rank 0, which the others follow."""

    def look_ahead(self, block: str, iteration: int, worth: Callable[[], bool]) -> None:
        """Decide whether there will be a checkpoint in the iteration to come."""
        if self._file < 0 or self._next.get(_word(block)) or not worth():
            return
        try:
            os.write(self._file, f"{iteration} {_word(block)}\n".encode())
        except OSError:  # a full disk: from here on ranks have no moments in common, and a replay begins earlier
            self.close()
        self._next[_word(block)] = [iteration]


class FollowerSchedule(_SharedSchedule):
    """Those of other ranks."""

    def __init__(self, file: int) -> None:
        super().__init__(file)
        self._heard = 0
        self._rest = b""

    def look_ahead(self, block: str, iteration: int, worth: Callable[[], bool]) -> None:
        """It is not ours to decide."""

    def _hear(self) -> None:
        new = os.pread(self._file, _PART, self._heard) if self._file >= 0 else b""
        if not new:
            return
        self._heard += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            iteration, _, block = line.decode().partition(" ")
            self._next.setdefault(block, []).append(int(iteration))


def agree_on_schedule(folder: Path, rank: int) -> RankSchedule:
    """The moments that the ranks of one run have in common; those of its own where no file can be made."""
    with contextlib.suppress(OSError):
        file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        return FollowerSchedule(file) if rank else LeaderSchedule(file)
    return SingleRankSchedule()


def _word(block: str) -> str:
    return block.replace("\n", " ")
