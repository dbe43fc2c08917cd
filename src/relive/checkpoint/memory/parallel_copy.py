"""Many copies at the speed of memory: shared by two threads, so that neither waits for the other."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

PART_BYTES = 8 << 20  # large copies are cut into parts, so that they can be shared
WORTH_SHARING_BYTES = 32 << 20  # below, waking a thread of our own takes longer than it saves
RETRY_EVERY = 8  # copies after which the slower way gets another chance
Part = tuple[Any, Any]


def parts_of(target: Any, source: Any) -> list[Part]:
    """A copy of bytes as copies of at most PART_BYTES each."""
    ends = range(0, len(source), PART_BYTES)
    return [(target[at : at + PART_BYTES], source[at : at + PART_BYTES]) for at in ends]


class Copies:
    """Parts that are copied again and again, side by side or by one thread: what was quicker lately is done."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.are_many = sum(len(source) for _, source in parts) >= WORTH_SHARING_BYTES
        self._ways: list[Callable[[], None]] = [self._one_by_one]
        tensors = None if self.are_many else _as_tensors(parts)
        if tensors is not None:
            # torch's threads are still awake after a step and share what isn't worth waking ours; but if others
            # want the cores, too, they keep each other waiting, and one thread alone is quicker.
            self._ways.append(partial(sys.modules["torch"]._foreach_copy_, *tensors))
        self._took_s = [0.0] * len(self._ways)
        self._times = 0

    def do(self) -> None:
        self._times += 1
        retry = self._times % RETRY_EVERY == 0
        way = self._times // RETRY_EVERY % len(self._ways) if retry else self._took_s.index(min(self._took_s))
        begun = time.perf_counter()
        self._ways[way]()
        self._took_s[way] = time.perf_counter() - begun

    def _one_by_one(self) -> None:
        for target, source in self.parts:
            np.copyto(target, source)


def _as_tensors(parts: list[Part]) -> tuple[list[Any], list[Any]] | None:
    """Targets and sources for torch; None where there is no torch, or it would warn about what it may not write."""
    torch = sys.modules.get("torch")
    if torch is None or not parts or not all(source.flags.writeable for _, source in parts):
        return None
    return [torch.from_numpy(target) for target, _ in parts], [torch.from_numpy(source) for _, source in parts]


class Copier:
    """Does copies. Its second thread sleeps in between, and if it gets no core the first does it all."""

    def __init__(self) -> None:
        self._heap: deque[Part] = deque()
        self._wake = threading.Semaphore(0)
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None

    def copy(self, copies: Copies) -> None:
        """All of it is copied when this returns."""
        if copies.are_many:
            self._share(copies.parts)
        else:
            copies.do()

    def _share(self, parts: list[Part]) -> None:
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
