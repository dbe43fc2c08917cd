"""Taps `sys.stdout` and `sys.stderr`: each write also goes to a queue. The streams stay the objects that they were."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

MAX_QUEUED = 200_000  # writes between two flushes; of more, the last ones are kept
STREAMS = ("out", "err")


class WriteQueue:
    """The writes of one run that are not recorded yet: texts for stdout, and tuples with a text for stderr."""

    def __init__(self) -> None:
        self._writes: deque[str | tuple[str]] = deque(maxlen=MAX_QUEUED)
        self.put: Callable[[str | tuple[str]], None] = self._writes.append

    def take(self) -> tuple[list[str | tuple[str]], bool]:
        """Returns the writes since the last call, and whether more came than are kept."""
        is_full = len(self._writes) == MAX_QUEUED
        writes: list[str | tuple[str]] = []
        with contextlib.suppress(IndexError):
            while True:
                writes.append(self._writes.popleft())
        return writes, is_full


class StreamTap:
    """The only tap of this process. Writes go to the queue of the run that was opened last."""

    def __init__(self) -> None:
        self._queues: list[WriteQueue] = []
        self._undo: list[Callable[[], None]] = []

    def add(self, queue: WriteQueue) -> None:
        self._queues.append(queue)
        self._tap_anew()

    def remove(self, queue: WriteQueue) -> None:
        if queue in self._queues:
            self._queues.remove(queue)
            self._tap_anew()

    def forget(self) -> None:
        """In a forked child: its parent records; what the child prints goes to the streams only."""
        self._queues.clear()
        self._tap_anew()

    def _tap_anew(self) -> None:
        """Lets both streams write to the last queue, too; removes the taps if there is none."""
        while self._undo:
            self._undo.pop()()
        if not self._queues:
            return
        put = self._queues[-1].put
        if sys.stderr is not sys.stdout:
            self._tap(sys.stderr, lambda text: put((text,)))
        self._tap(sys.stdout, put)

    def _tap(self, stream: Any, put: Callable[[str], None]) -> None:
        # An attribute of the object hides the method of its class, for `print` and C code, too. So the stream stays the
        # same object, of the same type, with the same buffer, and references to it that were taken earlier are tapped.
        original, wrapped = getattr(stream, "write", None), getattr(stream, "__dict__", {}).get("write")
        if original is None:  # there is no console, as under pythonw
            return

        def write(text: str, /) -> int:
            written: int = original(text)
            put(text if type(text) is str else str.__str__(text))  # subclasses may hold more than their text
            return written

        def undo() -> None:
            if stream.__dict__.get("write") is not write:
                return  # another library wrapped it later
            if wrapped is None:
                del stream.write
            else:
                stream.write = wrapped

        with contextlib.suppress(AttributeError, TypeError):  # a stream that allows no attributes is not recorded
            stream.write = write
            self._undo.append(undo)


STREAM_TAP = StreamTap()
