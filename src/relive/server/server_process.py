"""The process of `relive serve`: one uvicorn server on one socket, until SIGTERM or SIGINT."""

from __future__ import annotations

import ctypes
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from relive.errors import ReliveError
from relive.server.questions import QuestionLimits
from relive.server.tokens import LOOPBACK
from relive.store import Home
from relive.store.catalog import Index

GRACE_S = 10
KEEP_ALIVE_S = 75
BACKLOG = 2048  # connections that the system keeps until the server accepts them
ACCEPTED_AT_ONCE = 16  # in one turn of the event loop: a flood of connections must not hold up those that exist
_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 256 << 10


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of `relive serve`. `is_open` gives everyone on this machine access without a token."""

    store: Home
    host: str = "127.0.0.1"
    port: int = 5005
    is_open: bool = False
    limits: QuestionLimits = field(default_factory=QuestionLimits)


def serve(options: ServerOptions, announce: Callable[[str], None]) -> None:
    """Serves a store until SIGTERM or SIGINT; calls `announce` with the URL once the socket listens."""
    if options.is_open and options.host not in LOOPBACK:
        raise ReliveError(
            f"--open is for this machine only, not for {options.host}; create tokens with `relive token create`"
        )
    try:
        import uvicorn

        from relive.server.app import Service
        from relive.server.http import Door, GuardedConnection
    except ImportError as error:
        raise ReliveError(f"{error}; install the server with `pip install 'relive[server]'`") from error
    if options.store.settings.catalog:  # an unusable database fails now, not on the first request
        Index(options.store).close()
    _raise_open_file_limit()
    _return_freed_memory()
    sock = _listen(options)
    try:
        service = Service(options.store, is_open=options.is_open, limits=options.limits)
        connection: Any = partial(GuardedConnection, door=Door())
        config = uvicorn.Config(
            service.app(), http=connection, ws="none", lifespan="on", log_level="warning", access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=GRACE_S, backlog=ACCEPTED_AT_ONCE,
        )  # fmt: skip
        host, port = sock.getsockname()[:2]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # uvicorn raises the signal again after a clean shutdown
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        uvicorn.Server(config).run(sockets=[sock])
    finally:
        sock.close()


class _Listener(socket.socket):
    """A socket whose queue stays long: asyncio sets its length to the number that it accepts in one turn."""

    def listen(self, _at_once: int = BACKLOG, /) -> None:
        super().listen(BACKLOG)


def _listen(options: ServerOptions) -> socket.socket:
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        sock = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Without this, the second write of a response (the body) waits up to 40 ms for the ACK of the first.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((options.host, options.port))
        sock.listen()
    except OSError as error:
        raise ReliveError(f"{options.host}:{options.port}: {error.strerror}; choose another with --port") from error
    return sock


def _return_freed_memory() -> None:
    """Makes malloc use mmap for large blocks, so that freed ranges and tables return to the system at once."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc; other allocators return memory anyway
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _raise_open_file_limit() -> None:
    """Raises the limit on open files: each connection is one, and 400 runs of 8 ranks need 3,200."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
