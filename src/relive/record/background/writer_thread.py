"""Executes the calls of a writer on a thread of the training process."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from relive.record.background.argument_copies import copy_argument, size_bytes
from relive.record.background.deferred_calls import METHOD, CallExecutor, CallFailures, DeferredCall

CALL_BYTES = 512  # estimated memory of a queued call besides its arguments
FLUSH, CLOSE = "flush", "close"


@dataclass(frozen=True, slots=True)
class _Barrier:
    """A request to flush or close the writer after all earlier calls; its caller waits for `is_done`."""

    name: str
    is_done: threading.Event = field(default_factory=threading.Event)


class WriterThread:
    """Queues calls in bounded memory; a caller that finds the queue full waits."""

    def __init__(self, writer: Any, max_bytes: int) -> None:
        self._failures = CallFailures()
        self._executor = CallExecutor(writer, self._failures)
        self._max_bytes = max_bytes
        self._queue: queue.SimpleQueue[tuple[DeferredCall, int] | _Barrier] = queue.SimpleQueue()
        self._waiting_bytes = 0  # of calls that are not executed yet
        self._room = threading.Condition()
        self._order = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="relive-background", daemon=True)
        self._thread.start()

    def attribute(self, name: str) -> Any:
        value = getattr(self._executor.writer, name)
        return METHOD if callable(value) else value

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        at, cost = time.time(), size_bytes((args, kwargs)) + CALL_BYTES
        with self._order:
            with self._room:  # a call larger than the bound is accepted when the queue is empty
                self._room.wait_for(lambda: not self._waiting_bytes or self._waiting_bytes + cost <= self._max_bytes)
                self._waiting_bytes += cost
            self._queue.put((DeferredCall(name, copy_argument(args), copy_argument(kwargs), at), cost))

    def flush(self) -> None:
        self._wait_for(FLUSH)

    def close(self) -> None:
        self._wait_for(CLOSE)

    def abandon(self) -> None:
        """Does nothing: the thread does not exist in a forked child."""

    def _wait_for(self, name: str) -> None:
        barrier = _Barrier(name)
        self._queue.put(barrier)
        barrier.is_done.wait()
        self._failures.raise_any()

    def _work(self) -> None:
        """Executes all calls, including close, on this thread: some writers are bound to the thread that uses them."""
        while True:
            item = self._queue.get()
            if isinstance(item, _Barrier):
                self._executor.execute_if_defined(item.name)
                item.is_done.set()
                if item.name == CLOSE:
                    return
            else:
                call, cost = item
                self._executor.execute(call)
                del item, call  # frees the copied arguments
                with self._room:
                    self._waiting_bytes -= cost
                    self._room.notify_all()
