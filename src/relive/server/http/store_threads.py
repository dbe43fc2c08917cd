"""Two threads behind what comes in: one answers questions to the store, one takes in what has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from relive.errors import ReliveError, StorageUnavailable
from relive.server.http.error_responses import HttpError
from relive.store import Home
from relive.store.catalog import Index
from relive.store.sync import Intake

WAITING = 64  # questions at a time; who comes then is asked to come again
REFRESH_S = 1.0
TRY_AGAIN_S = 30.0
SEGMENT_ROWS = 250_000  # fewer at a time than elsewhere: memory is shared with everything else
BUSY_BYTES_S = 4 << 20  # while so much comes in, ended runs wait: who sends goes first
LONGEST_WAIT_S = 15.0  # but not for longer
_log = logging.getLogger("relive.server")
T = TypeVar("T")


class Reader:
    """Answers questions about the runs of a home, from the catalog and from journals that are not in it yet."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._thread = ThreadPoolExecutor(1, "relive-read")
        self._index: Index | None = None
        self._waiting = 0

    async def ask(self, question: Callable[[Index], T]) -> T:
        """The answer to a question to the index."""
        if self._waiting >= WAITING:
            raise HttpError(503, "too many questions at once; come again", retry_after_s=1)
        self._waiting += 1
        try:
            return await asyncio.wrap_future(self._thread.submit(self._answer, question))
        finally:
            self._waiting -= 1

    def _answer(self, question: Callable[[Index], T]) -> T:
        if self._index is None:  # made by the thread that uses it, as SQLite wants it
            self._index = Index(self._home, updates_catalog=False)
        try:
            return question(self._index)
        except StorageUnavailable as error:
            _log.warning("a question could not be answered: %s", error)
            raise

    def close(self) -> None:
        if self._index is not None:
            self._thread.submit(self._index.close).result()
        self._thread.shutdown()


class Indexer:
    """Takes runs that have ended into the index, behind everybody's back."""

    def __init__(self, home: Home, intake: Intake) -> None:
        self._home, self._intake = home, intake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relive-index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                with contextlib.closing(Index(self._home, segment_rows=SEGMENT_ROWS)) as index:
                    self._follow(index)
            except (OSError, ReliveError, sqlite3.Error) as error:  # a full disk, say: it is tried again
                _log.warning("the index could not be brought up to date: %s", error)
                self._stop.wait(TRY_AGAIN_S)

    def _follow(self, index: Index) -> None:
        seen, before_bytes, done = -1, 0, time.monotonic()
        while not self._stop.wait(REFRESH_S):
            now, taken_bytes = self._intake.ranges, self._intake.taken_bytes
            is_busy = taken_bytes - before_bytes > BUSY_BYTES_S * REFRESH_S
            before_bytes = taken_bytes
            if now != seen and not (is_busy and time.monotonic() - done < LONGEST_WAIT_S):
                index.refresh()
                seen, done = now, time.monotonic()
