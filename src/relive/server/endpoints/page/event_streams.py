"""The endpoint of events: one stream per open page, bounded per token, that continues where it was interrupted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from relive.server.endpoints.runs import query_text
from relive.server.http import CONNECTION, HttpError, lease_of
from relive.server.questions import ChangeWatcher

HEARTBEAT_S = 15.0
MAX_STREAMS = 64  # of one token


class EventEndpoints:
    """The endpoint of events."""

    def __init__(self, watcher: ChangeWatcher) -> None:
        self._watcher = watcher
        self._open: Counter[str] = Counter()

    async def events(self, request: Request) -> Response:
        """Returns a stream of events, until the client closes it."""
        lease = lease_of(request)
        if self._open[lease.who] >= MAX_STREAMS:
            raise HttpError(503, f"{MAX_STREAMS} pages of this token are open already; close one", retry_after_s=30)
        raw = request.query_params.get("runs", "")
        if len(raw) > 2_000:
            query_text(request, "runs")
        runs = frozenset(word for word in raw.split(",") if word)
        is_once = request.query_params.get("once") == "1"
        begun = 0 if is_once else await self._watcher.first_look()
        stream = self._stream(request, runs, begun, is_once=is_once)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")

    async def _stream(
        self, request: Request, runs: frozenset[str], begun: int, *, is_once: bool
    ) -> AsyncIterator[bytes]:
        lease = lease_of(request)
        self._open[lease.who] += 1
        subscription = self._watcher.subscribe(frozenset(lease.projects), runs)
        if (connection := request.scope.get(CONNECTION)) is not None:
            connection.on_shutdown = lambda: subscription.put(None)
        try:
            yield b"retry: 2000\n\n"
            last_id = request.headers.get("last-event-id", "")[:40]
            for event in self._watcher.since(last_id) if last_id or is_once else self._watcher.after(begun):
                if subscription.wants(event):
                    yield event.encode(runs)
            if is_once:
                return
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        found = await subscription.next()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if found is None:  # the server stops
                    return
                yield found.encode(runs)
        finally:
            if connection is not None:
                connection.on_shutdown = None
            self._watcher.unsubscribe(subscription)
            self._open[lease.who] -= 1
            if not self._open[lease.who]:
                del self._open[lease.who]
