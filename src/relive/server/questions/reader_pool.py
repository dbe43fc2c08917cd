"""Who is answered when: a few readers, shared fairly between tokens, and never all of them for long questions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from relive.errors import ReliveError
from relive.server.http import HttpError, lease_of
from relive.server.questions.answers import StoreQuestion, warm_up
from relive.server.questions.question_limits import QuestionLimits
from relive.server.questions.reader_shares import ReaderShares, ReaderUse, Reading
from relive.server.questions.store_process import Deadline, ProcessEnded, StoreProcess
from relive.store import Home

MAX_WAITING = 64  # questions of one token; who comes then is asked to come again
LOOK_AGAIN_S = 0.05
GONE_S = 0.25  # how long a question may go on after its client has gone
KEPT_BYTES = 256 << 20  # a reader that holds more after its answer is replaced
_GONE = HttpError(400, "the client closed the connection before the answer")
_BUSY = HttpError(503, "the server has many questions, and this one takes long; ask again later", retry_after_s=5)


@dataclass(eq=False)
class _Asked:
    """A question with its asker."""

    who: str
    question: StoreQuestion
    deadline: Deadline
    finishes: bool = False
    is_low: bool = False  # it runs at a low priority from the start
    is_left: bool = False  # its client has gone
    future: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class ReaderPool:
    """Processes that answer questions. All methods but `close` are for the event loop."""

    def __init__(self, home: Home, limits: QuestionLimits) -> None:
        self._home, self._limits = home, limits
        self._threads = ThreadPoolExecutor(limits.readers, "relive-read")
        self._free: list[StoreProcess] = []
        self._running: dict[_Asked, float] = {}
        self._waiting: dict[str, deque[_Asked]] = {}
        self._use = ReaderUse()
        self._starter = ThreadPoolExecutor(1, "relive-start")
        self._tasks: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._starting = 0  # readers that are being started
        self._is_closed = False

    def warm_up(self) -> None:
        """Starts one reader and opens its index, so that no question waits for it."""
        process = self._new_process()
        with contextlib.suppress(ReliveError, RuntimeError):  # the next question will tell
            process.ask(StoreQuestion(warm_up), Deadline(self._limits.seconds).check)
        is_enough = len(self._free) + len(self._running) >= self._limits.readers
        if not process.is_usable or self._is_closed or is_enough:
            process.kill()
        else:
            self._free.insert(0, process)  # taken last: one that has answered already knows more of the store

    async def ask(self, request: Request, function: Callable[..., Any], *args: Any, finishes: bool = False) -> bytes:
        """Returns the answer of an importable function to the index and these arguments, as JSON.

        A question whose client has gone is given up, unless it `finishes`: because it changes something.
        """
        lease = lease_of(request)
        question = StoreQuestion(function, args, lease.projects)
        asked = _Asked(lease.who, question, Deadline(self._limits.seconds), finishes)
        queue = self._waiting.setdefault(asked.who, deque())
        if len(queue) >= MAX_WAITING:
            raise HttpError(503, "too many questions at once; ask again", retry_after_s=1)
        queue.append(asked)
        self._dispatch()
        try:
            if not finishes:
                await self._until_answered_or_gone(request, asked)
            body = await asked.future
        except asyncio.CancelledError:
            self._give_up(asked)
            raise
        lease.hold(len(body))
        return body

    async def _until_answered_or_gone(self, request: Request, asked: _Asked) -> None:
        gone = asyncio.ensure_future(_client_gone(request))
        awaited: set[asyncio.Future[Any]] = {asked.future, gone}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if not asked.future.done():
                self._give_up(asked)
        finally:
            gone.cancel()

    def _give_up(self, asked: _Asked) -> None:
        """Forgets a question that waits, and ends one that runs."""
        queue = self._waiting.get(asked.who)
        if queue is not None and asked in queue:
            queue.remove(asked)
            if not asked.future.done():
                asked.future.set_exception(_GONE)
        asked.is_left = True
        asked.deadline.bring_forward(GONE_S, _GONE)

    def _dispatch(self) -> None:
        """Starts waiting questions while there are readers; who has used the readers least comes first."""
        for left in [who for who, queue in self._waiting.items() if not queue]:
            del self._waiting[left]
        while (who := (shares := self._shares()).choose_next(self._waiting)) is not None:
            if len(self._running) >= self._limits.readers:
                self._make_room(shares)
                return
            queue = self._waiting[who]
            asked = queue.popleft()
            if not queue:
                del self._waiting[who]
            self._running[asked], asked.is_low = time.monotonic(), shares.is_heavy(who)
            self._tasks.add(task := asyncio.ensure_future(self._run(asked)))
            task.add_done_callback(self._tasks.discard)

    def _shares(self) -> ReaderShares:
        return ReaderShares(self._limits.readers, self._use, [self._reading(asked) for asked in self._running])

    def _reading(self, asked: _Asked) -> Reading:
        return Reading(asked.who, asked.deadline.cpu_s, time.monotonic() - self._running[asked], asked.is_left)

    def _make_room(self, shares: ReaderShares) -> None:
        """Ends a long question if there are too many; looks again in a moment, since others may become long."""
        number = shares.choose_end()
        if number is not None:
            list(self._running)[number].deadline.bring_forward(0, _BUSY)
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._dispatch()

    async def _run(self, asked: _Asked) -> None:
        loop = asyncio.get_running_loop()
        try:
            body = await loop.run_in_executor(self._threads, self._answer, asked)
        except BaseException as error:
            if not asked.future.done():
                asked.future.set_exception(error)
                asked.future.exception()  # nobody may be left to fetch it
            if not isinstance(error, Exception):
                raise
        else:
            if not asked.future.done():
                asked.future.set_result(body)
        finally:
            self._use.add(self._reading(asked))
            del self._running[asked]
            self._dispatch()
            there = len(self._free) + len(self._running) + self._starting
            if not self._is_closed and there < self._limits.readers:
                self._starting += 1
                try:
                    await loop.run_in_executor(self._starter, self.warm_up)
                finally:
                    self._starting -= 1

    def _answer(self, asked: _Asked) -> bytes:
        """Asks a free process, and another one if that has died, unless the question may have changed something."""
        asked.deadline.check()
        try:
            return self._ask(self._take(), asked)
        except ProcessEnded:
            if asked.finishes:
                raise
            return self._ask(self._take(), asked)

    def _ask(self, process: StoreProcess, asked: _Asked) -> bytes:
        try:
            if asked.is_low:
                process.lower_priority()
            body = process.ask(asked.question, asked.deadline.check)
            asked.deadline.cpu_s = process.took_cpu_s
            return body
        finally:
            if process.is_slow or process.resident_bytes > KEPT_BYTES or len(self._free) >= self._limits.readers:
                process.kill()
            if process.is_usable:
                self._free.append(process)

    def _take(self) -> StoreProcess:
        with contextlib.suppress(IndexError):
            while True:
                process = self._free.pop()
                if process.is_alive:
                    return process
                process.kill()
        return self._new_process()

    def _new_process(self) -> StoreProcess:
        return StoreProcess(self._home, self._limits.memory_bytes, updates_catalog=False)

    def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        for asked in list(self._running):
            asked.deadline.bring_forward(0, HttpError(503, "the server stops", retry_after_s=5))
        self._starter.shutdown()
        self._threads.shutdown()
        while self._free:
            with contextlib.suppress(OSError):
                self._free.pop().close()


async def _client_gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
