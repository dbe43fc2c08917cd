"""Connections that bring nothing: how long the server waits for them, and which are closed when many come.

A connection without a valid token may be closed at any time. There are few of them, and when another comes, the oldest
one of the address that has most of them is closed: whoever shows a token at once is never kept out by those who wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MAX_STRANGERS = 512  # connections that have not shown a valid token
MAX_KNOWN = 12_000  # connections that have
HEAD_S = 10.0  # for the whole head of a request
STALL_S = 30.0  # for a client that does not read its answer, and more for long answers
MIN_BYTES_PER_S = 64 << 10
CONNECTION = "relive.connection"


class Crowd:
    """Connections in groups, at most so many in all; the oldest one of the largest group makes room for another."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: dict[str, dict[GuardedConnection, None]] = {}
        self._count = 0

    def enter(self, connection: GuardedConnection, group: str) -> None:
        self._groups.setdefault(group, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            largest = max(self._groups, key=lambda name: len(self._groups[name]))
            oldest = next(iter(self._groups[largest]))
            self.leave(oldest, largest)
            oldest.abort()

    def leave(self, connection: GuardedConnection, group: str) -> None:
        members = self._groups.get(group, {})
        if connection in members:
            del members[connection]
            self._count -= 1
        if not members:
            self._groups.pop(group, None)


class Door:
    """All connections of a server: those that have shown a valid token, and strangers."""

    def __init__(self) -> None:
        self.strangers = Crowd(MAX_STRANGERS)
        self.known = Crowd(MAX_KNOWN)


class GuardedConnection(H11Protocol):
    """A connection of HTTP/1.1, whose heads are bounded in size by h11, with deadlines for its head and its reader."""

    def __init__(self, *args: Any, door: Door, **how: Any) -> None:
        super().__init__(*args, **how)
        self._door = door
        self._token: str | None = None
        self._address = ""
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self.on_shutdown: Callable[[], None] | None = None  # ends an answer that would go on for ever
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope[CONNECTION] = self
            await inner(scope, receive, send)

        self.app = app

    def identify(self, token: str) -> None:
        """Records that a request on this connection had a valid token."""
        if self._token is None and not self.transport.is_closing():
            self._token = token
            self._door.strangers.leave(self, self._address)
            self._door.known.enter(self, token)

    def abort(self) -> None:
        self.transport.abort()

    async def drained(self) -> None:
        """Returns when the client has read its answer, or is gone."""
        await self.flow.drain()

    def shutdown(self) -> None:
        if self.on_shutdown is not None:
            self.on_shutdown()
        super().shutdown()

    # --- called by asyncio --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._door.strangers.enter(self, self._address)
        self._head_timer = self.loop.call_later(HEAD_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timers()
        self._door.strangers.leave(self, self._address)
        if self._token is not None:
            self._door.known.leave(self, self._token)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and self._is_between_requests():
            self._head_timer = self.loop.call_later(HEAD_S, self.abort)
        super().data_received(data)
        if self._head_timer is not None and not self._is_between_requests():
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        wait_s = STALL_S + self.transport.get_write_buffer_size() / MIN_BYTES_PER_S
        self._stall_timer = self.loop.call_later(wait_s, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _is_between_requests(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _cancel_timers(self) -> None:
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._stall_timer = None
