"""Takes runs that have ended into the index, in a process of its own, while others send and ask."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

import msgspec

from relive.errors import ReliveError
from relive.query.series import build_pyramids
from relive.server.http import HttpError
from relive.server.questions.answers import ProjectIndex, StoreQuestion
from relive.server.questions.store_process import StoreProcess
from relive.store import Home

REFRESH_S = 1.0
TRY_AGAIN_S = 30.0
INDEX_PRIORITY = 10  # between short questions and long ones
SEGMENT_ROWS = 250_000  # fewer at a time than elsewhere: memory is shared with everything else
BUSY_BYTES_S = 4 << 20  # while so much comes in, ended runs wait: who sends goes first
LONGEST_WAIT_S = 15.0  # but not for longer
IDLE_S = 3.0  # without anything to do, a process that has grown is ended: what it took is not always returned
KEPT_BYTES = 96 << 20  # that much may it hold, or so much more than one that has just been started
GROWTH_BYTES = 32 << 20
_STOPPING = HttpError(503, "the server stops")
_log = logging.getLogger("relive.server")


class Arrivals(Protocol):
    """Tells whether something came in: another number of ranges, and more bytes."""

    @property
    def ranges(self) -> int: ...
    @property
    def taken_bytes(self) -> int: ...


class Indexer:
    """A thread that asks a process to bring the index up to date whenever something came in."""

    def __init__(self, home: Home, intake: Arrivals, memory_bytes: int) -> None:
        self._home, self._intake, self._memory_bytes = home, intake, memory_bytes
        self._stop, self._wants_rebuild = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="relive-index", daemon=True)
        self._process: StoreProcess | None = None
        self._kept_bytes = KEPT_BYTES
        self._pyramids_done = 0  # the number of a run: those before it have their pyramids

    def rebuild(self) -> None:
        """Lets the index be deleted and built anew, soon."""
        self._wants_rebuild.set()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        seen, before_bytes, done = -1, 0, time.monotonic()
        while not self._stop.wait(REFRESH_S):
            now, taken_bytes = self._intake.ranges, self._intake.taken_bytes
            is_busy = taken_bytes - before_bytes > BUSY_BYTES_S * REFRESH_S
            before_bytes = taken_bytes
            if self._wants_rebuild.is_set() and self._ask(StoreQuestion(rebuild)):
                self._wants_rebuild.clear()
                self._pyramids_done = 0
            if now != seen and not (is_busy and time.monotonic() - done < LONGEST_WAIT_S) and self._refresh():
                seen, done = now, time.monotonic()
            elif now == seen and time.monotonic() - done > IDLE_S:
                self._end_if_grown()
        if self._process is not None:
            self._process.close()

    def _refresh(self) -> bool:
        """Returns whether the index is up to date now."""
        is_new = self._process is None or not self._process.is_usable
        raw = self._ask(StoreQuestion(refresh, (self._pyramids_done,)))
        if not raw:
            return False
        is_first, self._pyramids_done = not self._pyramids_done, msgspec.json.decode(raw, type=int)
        if is_new and not is_first and self._process is not None:
            self._kept_bytes = max(KEPT_BYTES, self._process.resident_bytes + GROWTH_BYTES)
        return True

    def _end_if_grown(self) -> None:
        if self._process is not None and self._process.resident_bytes > self._kept_bytes:
            self._process.close()
            self._process = None

    def _ask(self, question: StoreQuestion) -> bytes:
        """Returns the answer; nothing if there is none."""
        try:
            if self._process is None or not self._process.is_usable:
                self._process = StoreProcess(self._home, self._memory_bytes, segment_rows=SEGMENT_ROWS)
                self._process.lower_priority(INDEX_PRIORITY)  # who sends and who asks goes first
            return self._process.ask(question, self._check_stop)
        except (OSError, ReliveError, RuntimeError) as error:  # a full disk, say: it is tried again
            if not self._stop.is_set():
                _log.warning("the index could not be brought up to date: %s", error)
                self._stop.wait(TRY_AGAIN_S)
            return b""

    def _check_stop(self, _cpu_s: float) -> None:
        if self._stop.is_set():
            raise _STOPPING


def refresh(index: ProjectIndex, pyramids_done: int) -> int:
    """Brings the index up to date; returns the number of a run up to which all have their pyramids."""
    index.refresh()
    return build_pyramids(index, pyramids_done)


def rebuild(index: ProjectIndex) -> None:
    """Deletes the index and builds it from the journals."""
    index.rebuild()
