"""Makes the calls of a writer in a thread of the training's own process."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from relive.record.background.calls import METHOD, Call, Doer, Failures, described
from relive.record.background.copies import Form, Lease, Pool, aligned, copy_into, mapped, text_bytes

CALL_BYTES = 512  # what a waiting call takes besides its arrays and texts, roughly


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call in the queue, and what it takes there."""

    call: Call
    lease: Lease | None
    cost_bytes: int


class _Layer:
    """Lays copies side by side into one buffer."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._at = 0

    def copy(self, array: Any, form: Form) -> Any:
        start = self._at
        self._at += aligned(form.size_bytes)
        return copy_into(self._lease.buffer[start : start + form.size_bytes], array, form)


class InThread:
    """Makes the calls of a writer in a thread."""

    def __init__(self, writer: Any, max_bytes: int) -> None:
        self._failures = Failures()
        self._doer = Doer(writer, self._failures)
        self._max_bytes = max_bytes
        self._pool = Pool(max_bytes)
        self._waiting_bytes = 0
        self._room = threading.Condition()
        self._order = threading.Lock()
        self._queue: queue.SimpleQueue[_Waiting | threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="relive-background", daemon=True)
        self._thread.start()

    def attribute(self, name: str) -> Any:
        value = getattr(self._doer.writer, name)
        return METHOD if callable(value) else value

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        at = time.time()
        try:
            with self._order:
                self._hand_over(name, (args, kwargs), at)
        except Exception as error:  # noqa: BLE001 - arguments that can't be copied; the user's training must go on
            self._failures.add(described(name, args, kwargs), error)

    def flush(self) -> None:
        flushed = threading.Event()
        self._queue.put(flushed)
        flushed.wait()
        self._failures.raise_any()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._failures.raise_any()

    def abandon(self) -> None:
        """Threads don't survive a fork: nobody here works on the queue, and it is never waited for."""

    def _hand_over(self, name: str, given: tuple[Any, Any], at: float) -> None:
        sizes: list[int] = []
        taken = mapped(given, lambda _, form: sizes.append(aligned(form.size_bytes)))
        cost_bytes = sum(sizes) + text_bytes(given) + CALL_BYTES
        self._wait_for_room(cost_bytes)
        lease = self._pool.lend(sum(sizes)) if sizes else None
        try:
            args, kwargs = mapped(given, _Layer(lease).copy) if lease is not None else taken
        except BaseException:
            self._have_done(lease, cost_bytes)
            raise
        self._queue.put(_Waiting(Call(name, args, kwargs, at), lease, cost_bytes))

    def _wait_for_room(self, cost_bytes: int) -> None:
        """A call that is larger than the limit is let through when nothing else waits."""
        with self._room:
            self._room.wait_for(lambda: not self._waiting_bytes or self._waiting_bytes + cost_bytes <= self._max_bytes)
            self._waiting_bytes += cost_bytes

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                self._doer.do_if_there("flush", time.time())
                item.set()
            else:
                self._doer.do(item.call)
                lease, cost_bytes = item.lease, item.cost_bytes
                del item  # with it goes the last of our own references to the copies
                self._have_done(lease, cost_bytes)
        self._doer.do_if_there("close", time.time())

    def _have_done(self, lease: Lease | None, cost_bytes: int) -> None:
        if lease is not None:
            self._pool.take_back(lease)
        with self._room:
            self._waiting_bytes -= cost_bytes
            self._room.notify_all()
