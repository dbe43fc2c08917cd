"""How much of the server one token may use at once: requests, bytes in memory, threads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from relive.server.http.error_responses import HttpError

MAX_REQUESTS = 2_048  # of all tokens
MAX_TOKEN_REQUESTS = 512
MAX_BYTES = 128 << 20  # of bodies and answers, of all tokens
MAX_TOKEN_BYTES = 64 << 20
MAX_TOKEN_THREADS = 2
THREADS = 8
LEASE = "relive.lease"
T = TypeVar("T")


class Admission:
    """Counts what the requests of each token use. For the event loop only."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.held_bytes: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(THREADS, "relive-work")
        self._turns: dict[str, asyncio.Semaphore] = {}

    @property
    def in_flight(self) -> int:
        return self.requests.total()

    def admit(self, who: str, *, projects: tuple[str, ...] = (), name: str = "", limited: bool = True) -> Lease:
        """Begins a request; raises 503 if its token, or all together, have too many."""
        if (limited and self.requests[who] >= MAX_TOKEN_REQUESTS) or self.in_flight >= MAX_REQUESTS:
            raise HttpError(503, "too many requests at a time; retry later", retry_after_s=1)
        self.requests[who] += 1
        return Lease(self, who, projects, name, limited=limited)

    def turns(self, who: str, *, limited: bool) -> asyncio.Semaphore:
        return self._turns.setdefault(who, asyncio.Semaphore(MAX_TOKEN_THREADS if limited else THREADS))

    async def work(self, task: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, task)

    def close(self) -> None:
        self._threads.shutdown()


class Lease:
    """What one request uses, until `release`. `who` is the id of its token, "" on an open server."""

    def __init__(
        self, admission: Admission, who: str, projects: tuple[str, ...] = (), name: str = "", *, limited: bool = True
    ) -> None:
        self.who, self.projects, self.name = who, projects, name
        self._admission = admission
        self._limited = limited
        self._bytes = 0

    def hold(self, more_bytes: int) -> None:
        """Counts bytes that stay in memory until the request ends; raises 503 if there are too many."""
        held = self._admission.held_bytes
        is_too_much = self._limited and held[self.who] + more_bytes > MAX_TOKEN_BYTES
        if held[self.who] and (is_too_much or held.total() + more_bytes > MAX_BYTES):
            raise HttpError(503, "too many bytes are in transfer; retry later", retry_after_s=1)
        held[self.who] += more_bytes
        self._bytes += more_bytes

    async def work(self, task: Callable[[], T]) -> T:
        """Does blocking work in a thread; a token has two at a time, so that it leaves some for others."""
        async with self._admission.turns(self.who, limited=self._limited):
            return await self._admission.work(task)

    def release(self) -> None:
        held, requests = self._admission.held_bytes, self._admission.requests
        held[self.who] -= self._bytes
        requests[self.who] -= 1
        for counts in (held, requests):
            if not counts[self.who]:
                del counts[self.who]


def lease_of(request: Request) -> Lease:
    """Returns the lease that `Authorization` gave to a request."""
    lease: Lease = request.scope[LEASE]
    return lease
