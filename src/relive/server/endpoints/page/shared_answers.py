"""One answer for all pages that ask the same at the same time, as they do when an event reaches them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from relive.server.http import lease_of
from relive.server.questions import ReaderPool

KEPT_S = 0.3  # so old may an answer be
MAX_KEPT = 64
MAX_KEPT_BYTES = 4 << 20  # of one answer; larger ones are shared only while they are worked on


class _AskedInVain(Exception):
    """The page that asked has gone, or its question failed: whoever waits for the answer asks again."""


@dataclass(eq=False)
class _Shared:
    future: asyncio.Future[bytes]
    at: float = 0.0  # when it was answered; 0 while it is not


class SharedAnswers:
    """Asks the readers, once for equal questions of tokens that may see the same. For the event loop only."""

    def __init__(self, readers: ReaderPool) -> None:
        self._readers = readers
        self._asked: dict[Any, _Shared] = {}

    async def ask(self, request: Request, function: Callable[..., Any], *args: Any) -> bytes:
        """Returns the answer as JSON; the arguments are hashable."""
        lease = lease_of(request)
        key = function, args, lease.projects
        known = self._asked.get(key)
        if known is not None and (not known.at or time.monotonic() - known.at < KEPT_S):
            try:
                body = await asyncio.shield(known.future)
            except _AskedInVain:
                return await self._readers.ask(request, function, *args)
            lease.hold(len(body))
            return body
        return await self._ask_first(request, key)

    async def _ask_first(self, request: Request, key: tuple[Any, ...]) -> bytes:
        shared = self._asked[key] = _Shared(asyncio.get_running_loop().create_future())
        try:
            body = await self._readers.ask(request, key[0], *key[1])
        except BaseException:
            del self._asked[key]
            shared.future.set_exception(_AskedInVain())
            shared.future.exception()  # nobody may wait for it
            raise
        shared.future.set_result(body)
        shared.at = time.monotonic()
        self._forget_old()
        if len(body) > MAX_KEPT_BYTES and self._asked.get(key) is shared:
            del self._asked[key]
        return body

    def _forget_old(self) -> None:
        now = time.monotonic()
        for key in [key for key, one in self._asked.items() if one.at and now - one.at > KEPT_S]:
            del self._asked[key]
        while len(self._asked) > MAX_KEPT:
            del self._asked[next(iter(self._asked))]
