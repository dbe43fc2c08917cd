"""The schedule of checkpoints that all ranks of a run share, although no rank waits for another.

Rank 0 decides one iteration ahead and appends its decision to a file beside the journals; the other ranks read that
file when an iteration ends. If ranks exchange data in every iteration, none of them ends an iteration before rank 0
has begun it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

SCHEDULE_FILE = "moments"
_READ_BYTES = 1 << 16


class RankSchedule(Protocol):
    """Decides whether a checkpoint is taken at a block; `is_worth_it` is what this rank alone would decide."""

    def is_agreed(self, block: str, iteration: int) -> bool: ...
    def is_due(self, block: str, iteration: int, is_worth_it: Callable[[], bool]) -> bool: ...
    def decide_ahead(self, block: str, iteration: int, is_worth_it: Callable[[], bool]) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


class SingleRankSchedule:
    """The schedule of a process that is the only rank: a checkpoint whenever it is worth it."""

    def is_agreed(self, block: str, iteration: int) -> bool:
        return False

    def is_due(self, block: str, iteration: int, is_worth_it: Callable[[], bool]) -> bool:
        return is_worth_it()

    def decide_ahead(self, block: str, iteration: int, is_worth_it: Callable[[], bool]) -> None:
        """Does nothing: there are no other ranks."""

    def reset(self) -> None:
        """Does nothing: there is no agreement."""

    def close(self) -> None:
        """Does nothing: there is no file."""


class _SharedSchedule:
    """The agreed checkpoints of each block: the iteration from which on the next one is due.

    There is no agreement yet in the first iteration: each rank decides for itself, and mostly alike.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._agreed: dict[str, list[int]] = {}  # several, if rank 0 is ahead

    def is_agreed(self, block: str, iteration: int) -> bool:
        self._read_decisions()
        return any(iteration >= agreed for agreed in self._agreed.get(_block_key(block), ()))

    def is_due(self, block: str, iteration: int, is_worth_it: Callable[[], bool]) -> bool:
        if iteration == 0:
            return is_worth_it()
        if not self.is_agreed(block, iteration):
            return False
        self._agreed[_block_key(block)] = [agreed for agreed in self._agreed[_block_key(block)] if agreed > iteration]
        return True

    def reset(self) -> None:
        """Forgets agreed checkpoints: the main loop is over."""
        self._agreed.clear()

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _read_decisions(self) -> None:
        """Does nothing: rank 0 knows its own decisions."""


class LeaderSchedule(_SharedSchedule):
    """The schedule of rank 0, which decides."""

    def decide_ahead(self, block: str, iteration: int, is_worth_it: Callable[[], bool]) -> None:
        """Decides whether a checkpoint is due in the next iteration."""
        if self._file < 0 or self._agreed.get(_block_key(block)) or not is_worth_it():
            return
        try:
            os.write(self._file, f"{iteration} {_block_key(block)}\n".encode())
        except OSError:  # the disk is full: from now on ranks have no common checkpoints, and a replay begins earlier
            self.close()
        self._agreed[_block_key(block)] = [iteration]


class FollowerSchedule(_SharedSchedule):
    """The schedule of the other ranks, which read the decisions of rank 0."""

    def __init__(self, file: int) -> None:
        super().__init__(file)
        self._offset = 0
        self._partial_line = b""

    def decide_ahead(self, block: str, iteration: int, is_worth_it: Callable[[], bool]) -> None:
        """Does nothing: rank 0 decides."""

    def _read_decisions(self) -> None:
        new = os.pread(self._file, _READ_BYTES, self._offset) if self._file >= 0 else b""
        if not new:
            return
        self._offset += len(new)
        *lines, self._partial_line = (self._partial_line + new).split(b"\n")
        for line in lines:
            iteration, _, block = line.decode().partition(" ")
            self._agreed.setdefault(block, []).append(int(iteration))


def agree_on_schedule(folder: Path, rank: int) -> RankSchedule:
    """Returns the schedule that the ranks of a run share; that of a single rank if the file can't be created."""
    with contextlib.suppress(OSError):
        file = os.open(folder / SCHEDULE_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        return FollowerSchedule(file) if rank else LeaderSchedule(file)
    return SingleRankSchedule()


def _block_key(block: str) -> str:
    """Returns the name of a block as it is written to the file, on one line."""
    return block.replace("\n", " ")
