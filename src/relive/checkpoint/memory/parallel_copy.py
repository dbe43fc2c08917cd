"""Memory copies at memory bandwidth: by one thread, by torch's threads, or shared with a helper thread."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

PART_BYTES = 8 << 20  # large copies are split into parts of this size, so that two threads can share them
WORTH_SHARING_BYTES = 32 << 20  # below this size, waking the helper thread takes longer than it saves
RETRY_EVERY = 8  # every so many copies the other method is tried again
CopyPart = tuple[Any, Any]  # target, source


def split_copy(target: Any, source: Any) -> list[CopyPart]:
    """Splits a copy of bytes into parts of at most PART_BYTES."""
    ends = range(0, len(source), PART_BYTES)
    return [(target[at : at + PART_BYTES], source[at : at + PART_BYTES]) for at in ends]


class CopyPlan:
    """Parts that are copied repeatedly, each time by the method that was faster recently."""

    def __init__(self, parts: list[CopyPart]) -> None:
        self.parts = parts
        self.is_large = sum(len(source) for _, source in parts) >= WORTH_SHARING_BYTES
        self._methods: list[Callable[[], None]] = [self._copy_each]
        tensors = None if self.is_large else _as_tensors(parts)
        if tensors is not None:
            # torch's threads are still awake after a training step, so they can share copies too small for the helper
            # thread. If other processes compete for the cores, they wait for each other and one thread is faster.
            self._methods.append(partial(sys.modules["torch"]._foreach_copy_, *tensors))
        self._took_s = [0.0] * len(self._methods)
        self._runs = 0

    def run(self) -> None:
        """Copies all parts."""
        self._runs += 1
        retry = self._runs % RETRY_EVERY == 0
        method = self._runs // RETRY_EVERY % len(self._methods) if retry else self._took_s.index(min(self._took_s))
        begun = time.perf_counter()
        self._methods[method]()
        self._took_s[method] = time.perf_counter() - begun

    def _copy_each(self) -> None:
        for target, source in self.parts:
            np.copyto(target, source)


def _as_tensors(parts: list[CopyPart]) -> tuple[list[Any], list[Any]] | None:
    """Returns targets and sources as tensors; None without torch, or if torch would warn about a read-only source."""
    torch = sys.modules.get("torch")
    if torch is None or not parts or not all(source.flags.writeable for _, source in parts):
        return None
    return [torch.from_numpy(target) for target, _ in parts], [torch.from_numpy(source) for _, source in parts]


class Copier:
    """Runs copy plans. Its helper thread sleeps in between; if it gets no core, the calling thread copies it all."""

    def __init__(self) -> None:
        self._queue: deque[CopyPart] = deque()
        self._wake = threading.Semaphore(0)
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None

    def copy(self, plan: CopyPlan) -> None:
        """Runs a plan; returns when all bytes are copied."""
        if plan.is_large:
            self._copy_shared(plan.parts)
        else:
            plan.run()

    def _copy_shared(self, parts: list[CopyPart]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_helper, name="relive-copy", daemon=True)
            self._thread.start()
        self._queue.extend(parts)
        self._wake.release()
        self._drain_queue()
        self._idle.wait()  # the helper thread is copying at most one part

    def _drain_queue(self) -> None:
        while True:
            try:
                target, source = self._queue.popleft()
            except IndexError:
                return
            np.copyto(target, source)

    def _run_helper(self) -> None:
        while True:
            self._wake.acquire()
            self._idle.clear()
            self._drain_queue()
            self._idle.set()
