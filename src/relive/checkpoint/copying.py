"""Many copies at the speed of memory: two threads take them from one heap, so that neither waits for the other."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

PART_BYTES = 8 << 20  # large copies are cut into parts, so that they can be shared
WORTH_SHARING_BYTES = 32 << 20  # below, waking the other thread takes longer than it saves
Part = tuple[Any, Any]


def parts_of(target: Any, source: Any) -> list[Part]:
    """A copy of bytes as copies of at most PART_BYTES each."""
    ends = range(0, len(source), PART_BYTES)
    return [(target[at : at + PART_BYTES], source[at : at + PART_BYTES]) for at in ends]


class Copier:
    """Copies lists of parts. Its second thread sleeps in between, and if it gets no core the first does it all."""

    def __init__(self) -> None:
        self._heap: deque[Part] = deque()
        self._wake = threading.Semaphore(0)
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None

    def copy(self, parts: list[Part], size_bytes: int) -> None:
        """All of it is copied when this returns."""
        if size_bytes < WORTH_SHARING_BYTES:
            for target, source in parts:
                np.copyto(target, source)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._help, name="relive-copy", daemon=True)
            self._thread.start()
        self._heap.extend(parts)
        self._wake.release()
        self._work()
        self._idle.wait()  # at most one part is still being copied by the other thread

    def _work(self) -> None:
        while True:
            try:
                target, source = self._heap.popleft()
            except IndexError:
                return
            np.copyto(target, source)

    def _help(self) -> None:
        while True:
            self._wake.acquire()
            self._idle.clear()
            self._work()
            self._idle.set()
