"""The progress of a worker: a counter, and the iteration it is in, in a file that its parent reads."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

_FILE = "progress"
_FORMAT = struct.Struct("<qii")  # notes, loop, iteration
NOWHERE = -1  # in no iteration of a main loop


class Progress(NamedTuple):
    """What the parent sees. The number of notes changes whenever the worker gets on."""

    notes: int = 0
    loop: int = NOWHERE
    iteration: int = 0


class ProgressFile:
    """The side of the worker. Memory-mapped: a note costs less than a system call."""

    def __init__(self, folder: Path) -> None:
        path = folder / _FILE
        path.write_bytes(_FORMAT.pack(*Progress()))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FORMAT.size)
        self._count = 0
        self._loop, self._iteration = NOWHERE, 0

    def note(self) -> None:
        self._count += 1
        _FORMAT.pack_into(self._map, 0, self._count, self._loop, self._iteration)

    def enter(self, loop: int, iteration: int) -> None:
        self._loop, self._iteration = loop, iteration
        self.note()

    def leave(self) -> None:
        self.enter(NOWHERE, 0)


def read_progress(folder: Path) -> Progress:
    """Reads the progress of the worker of a folder; a worker that has not begun has none."""
    try:
        return Progress(*_FORMAT.unpack((folder / _FILE).read_bytes()))
    except (OSError, struct.error):
        return Progress()
