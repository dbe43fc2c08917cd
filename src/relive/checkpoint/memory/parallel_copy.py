"""Memory copies at memory bandwidth: by one thread, by torch's threads, shared with a helper thread, or by it alone."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

PART_BYTES = 8 << 20  # large copies are split into parts of this size, so that two threads can share them
WORTH_SHARING_BYTES = 32 << 20  # below this size, waking the helper thread takes longer than it saves
# torch copies fewer elements than its grain size (32,768) without its pool of threads. A second thread that uses the
# pool makes OpenMP count more threads than there are cores: from then on those of the training sleep at every barrier
# instead of waiting awake, and steps take twice as long.
UNSHARED_BYTES = 8 * 32_000
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
        # One call, so that the GIL is released once: between parts, a thread may wait for it for milliseconds.
        self.in_one_call = _one_call([piece for part in parts for piece in _unshared_pieces(*part)])
        if not self.is_large and (shared := _one_call(parts)) is not None:
            # torch's threads are still awake after a training step, so they can share copies too small for the helper
            # thread. If other processes compete for the cores, they wait for each other and one thread is faster.
            self._methods.append(shared)
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


def _one_call(parts: list[CopyPart]) -> Callable[[], None] | None:
    """Returns a call of torch that makes all copies; None without torch, or if it would warn of a read-only source."""
    torch = sys.modules.get("torch")
    if torch is None or not parts or not all(source.flags.writeable for _, source in parts):
        return None
    targets, sources = [target for target, _ in parts], [source for _, source in parts]
    return partial(torch._foreach_copy_, [*map(torch.from_numpy, targets)], [*map(torch.from_numpy, sources)])


def _unshared_pieces(target: Any, source: Any) -> list[CopyPart]:
    """Splits a copy of bytes into pieces that torch copies in the calling thread, most of them in words of 8 bytes."""
    words = len(source) // 8 * 8
    is_aligned = source.ctypes.data % 8 == target.ctypes.data % 8 == 0
    whole = (target[:words].view(np.int64), source[:words].view(np.int64)) if is_aligned and words else None
    step = UNSHARED_BYTES // 8
    pieces = (
        [(whole[0][at : at + step], whole[1][at : at + step]) for at in range(0, words // 8, step)] if whole else []
    )
    return [*pieces, *((target[at : at + step], source[at : at + step])
                       for at in range(words if whole else 0, len(source), step))]  # fmt: skip


class _Job:
    """Something that the helper thread does once."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run = run
        self.begun, self.done = threading.Event(), threading.Event()
        self.error: Exception | None = None


class Copier:
    """Runs copy plans. Its helper thread sleeps in between; if it gets no core, the calling thread copies it all."""

    def __init__(self) -> None:
        self._parts: deque[CopyPart] = deque()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def copy(self, plan: CopyPlan) -> None:
        """Runs a plan; returns when all bytes are copied."""
        if plan.is_large:
            self._copy_shared(plan.parts)
        else:
            plan.run()

    def begin(self, plan: CopyPlan) -> Callable[[], bool] | None:
        """Lets the helper thread run a plan while the caller goes on; None if it can't.

        The function that is returned waits for it, and returns whether all bytes are copied.
        """
        if plan.in_one_call is None:
            return None
        job = self._give(plan.in_one_call)
        job.begun.wait()  # lets go of the GIL until the helper thread has had it

        def finish() -> bool:
            job.done.wait()
            return job.error is None

        return finish

    def _copy_shared(self, parts: list[CopyPart]) -> None:
        self._parts.extend(parts)
        job = self._give(self._drain)
        self._drain()
        if job.begun.is_set():
            job.done.wait()  # it is copying at most one part

    def _give(self, run: Callable[[], object]) -> _Job:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_helper, name="relive-copy", daemon=True)
            self._thread.start()
        job = _Job(run)
        self._jobs.put(job)
        return job

    def _drain(self) -> None:
        while True:
            try:
                target, source = self._parts.popleft()
            except IndexError:
                return
            np.copyto(target, source)

    def _run_helper(self) -> None:
        while True:
            job = self._jobs.get()
            job.begun.set()
            try:
                job.run()
            except Exception as error:  # noqa: BLE001 - the training must not wait for a thread that has died
                job.error = error
            job.done.set()
            del job
