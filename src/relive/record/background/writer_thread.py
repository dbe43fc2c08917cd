"""Makes the calls of a writer in a thread of the training's own process."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from relive.record.background.argument_copies import copied, size_bytes
from relive.record.background.deferred_calls import METHOD, DeferredCall, Doer, Failures

CALL_BYTES = 512  # what a waiting call takes besides its arguments, roughly
FLUSH, CLOSE = "flush", "close"


@dataclass(frozen=True, slots=True)
class _Asked:
    """Somebody waits until all calls before this are made, and the writer has flushed or closed."""

    name: str
    is_done: threading.Event = field(default_factory=threading.Event)


class InThread:
    """Calls wait in a queue of bounded memory; whoever finds it full waits, too."""

    def __init__(self, writer: Any, max_bytes: int) -> None:
        self._failures = Failures()
        self._doer = Doer(writer, self._failures)
        self._max_bytes = max_bytes
        self._queue: queue.SimpleQueue[tuple[DeferredCall, int] | _Asked] = queue.SimpleQueue()
        self._waiting_bytes = 0  # of calls that aren't done
        self._room = threading.Condition()
        self._order = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="relive-background", daemon=True)
        self._thread.start()

    def attribute(self, name: str) -> Any:
        value = getattr(self._doer.writer, name)
        return METHOD if callable(value) else value

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        at, cost = time.time(), size_bytes((args, kwargs)) + CALL_BYTES
        with self._order:
            with self._room:  # a call larger than the bound is let through when nothing else waits
                self._room.wait_for(lambda: not self._waiting_bytes or self._waiting_bytes + cost <= self._max_bytes)
                self._waiting_bytes += cost
            self._queue.put((DeferredCall(name, copied(args), copied(kwargs), at), cost))

    def flush(self) -> None:
        self._ask(FLUSH)

    def close(self) -> None:
        self._ask(CLOSE)

    def abandon(self) -> None:
        """Threads don't survive a fork: nobody works on the queue here."""

    def _ask(self, name: str) -> None:
        asked = _Asked(name)
        self._queue.put(asked)
        asked.is_done.wait()
        self._failures.raise_any()

    def _work(self) -> None:
        """All calls come from this thread, closing too: some writers belong to the thread that uses them."""
        while True:
            item = self._queue.get()
            if isinstance(item, _Asked):
                self._doer.do_if_there(item.name)
                item.is_done.set()
                if item.name == CLOSE:
                    return
            else:
                call, cost = item
                self._doer.do(call)
                del item, call  # the copies can go
                with self._room:
                    self._waiting_bytes -= cost
                    self._room.notify_all()
