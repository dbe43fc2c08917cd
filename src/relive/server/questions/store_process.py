"""A process that answers questions to a store, seen from the server: it is ended when one passes its limits."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

import msgspec

from relive.errors import StorageUnavailable
from relive.server.http import HttpError
from relive.server.questions.answers import MAX_ANSWER_BYTES, StoreAnswer, StoreQuestion, answer_questions
from relive.server.questions.reader_shares import LONG_CPU_S
from relive.store import Home

POLL_S = 0.05
LOW_PRIORITY = 19  # of long questions: they get the processor time that nobody else wants
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ENVELOPE_BYTES = 1 << 20
# Loaded once, in the process that all others are forked from.
_PRELOADED = [
    "relive.server.endpoints.comparisons", "relive.server.endpoints.runs", "relive.server.endpoints.run_download",
    "relive.server.endpoints.run.run_page", "relive.server.questions.answers",
    "relive.query.compare.leaderboard", "relive.query.compare.rank_spread", "duckdb",
    "relive.server.endpoints.page.run_tables", "relive.server.endpoints.page.curves",
    "relive.query.series.series_reader",
]  # fmt: skip
_log = logging.getLogger("relive.server")


class Deadline:
    """When a question must be answered; it may be brought forward from another thread, with a reason."""

    def __init__(self, seconds: float) -> None:
        self.cpu_s = 0.0
        self._lock = threading.Lock()
        self._end = time.monotonic() + seconds
        self._error = HttpError(422, f"this question took longer than {seconds:g} s; narrow it, by a where clause say")

    def bring_forward(self, seconds: float, error: HttpError) -> None:
        """Ends the question in so many seconds at the latest."""
        with self._lock:
            if time.monotonic() + seconds < self._end:
                self._end, self._error = time.monotonic() + seconds, error

    def check(self, cpu_s: float = 0.0) -> None:
        """Notes the processor time so far, and raises the reason once the time is over."""
        self.cpu_s = cpu_s
        with self._lock:
            if time.monotonic() > self._end:
                raise self._error


class ProcessEnded(HttpError):
    """A process that ended before its answer, for another reason than its limits."""


class StoreProcess:
    """A process with an index of its own; for one thread at a time."""

    def __init__(self, home: Home, memory_bytes: int, **index_options: Any) -> None:
        context = _fork_context()
        self._connection, theirs = context.Pipe()
        their_life, self._life = context.Pipe(duplex=False)  # closed by the system when the server dies
        args = (theirs, their_life, home, memory_bytes, index_options)
        self._process = context.Process(target=answer_questions, args=args, name="relive-read", daemon=True)
        self._process.start()
        theirs.close()
        their_life.close()
        self.is_usable = True
        self.is_slow = False
        self.resident_bytes = 0
        self.took_cpu_s = 0.0  # of the last question that was answered

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self.is_usable and self._process.is_alive()

    def ask(self, question: StoreQuestion, check: Callable[[float], None]) -> bytes:
        """Returns the answer as JSON.

        `check` is called again and again with the processor time that the question took; if it raises, the process is
        ended.
        """
        try:
            self._connection.send_bytes(pickle.dumps(question))
            before_s = self._cpu_s()
            while not self._connection.poll(POLL_S):
                check(took_s := self._cpu_s() - before_s)
                if took_s > LONG_CPU_S and not self.is_slow:
                    self.lower_priority()
            self.took_cpu_s = self._cpu_s() - before_s
            raw = self._connection.recv_bytes(MAX_ANSWER_BYTES + _ENVELOPE_BYTES)
        except (OSError, EOFError) as error:
            self.kill()
            _log.warning("a process that answers questions ended; another takes its place")
            raise ProcessEnded(503, "the question could not be answered; ask again", retry_after_s=1) from error
        except BaseException:
            self.kill()
            raise
        answer = msgspec.msgpack.decode(raw, type=StoreAnswer)
        self.resident_bytes = answer.resident_bytes
        if answer.error == "memory":  # what it took is not always returned
            self.kill()
        if answer.error == "storage":
            _log.warning("a question could not be answered: %s", answer.message)
            raise StorageUnavailable(answer.message)
        return answer.unwrap()

    def _cpu_s(self) -> float:
        """Returns the processor time that the process has taken; 0 where the system doesn't tell."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def lower_priority(self, to: int = LOW_PRIORITY) -> None:
        """Lets all others go first; an ordinary user can't undo that, so the process is for this question only."""
        self.is_slow = True
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, int(thread), to)

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        if self.is_usable:
            self.is_usable = False
            self._process.kill()
            self._process.join()
            self._process.close()
            self._connection.close()
            self._life.close()

    def close(self) -> None:
        self.kill()  # it only reads, or its writes are committed last


def _fork_context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context
