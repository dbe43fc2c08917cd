"""The process of `relive serve` and `relive ui`: one uvicorn server on one socket, until SIGTERM or SIGINT."""

from __future__ import annotations

import ctypes
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from relive.errors import ReliveError
from relive.server.questions import QuestionLimits
from relive.server.tokens import LOOPBACK
from relive.store import Home
from relive.store.catalog import Index

if TYPE_CHECKING:
    from relive.server.app import Service
    from relive.server.endpoints.ask import Asker

GRACE_S = 10
UI_GRACE_S = 1  # open pages keep a connection, and only wait
UI_PORT = 5006
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
    asker: Asker | None = None  # replays for tokens with the scope `replay`


def serve(options: ServerOptions, announce: Callable[[str], None]) -> None:
    """Serves a store until SIGTERM or SIGINT; calls `announce` with the URL once the socket listens."""
    if options.is_open and options.host not in LOOPBACK:
        raise ReliveError(
            f"--open is for this machine only, not for {options.host}; create tokens with `relive token create`"
        )
    make_service = _import_service()
    if options.store.settings.catalog:  # an unusable database fails now, not on the first request
        Index(options.store).close()
    _raise_open_file_limit()
    _return_freed_memory()
    sock = _listen(options.host, options.port)
    try:
        service = make_service(options.store, is_open=options.is_open, limits=options.limits, asker=options.asker)
        host, port = sock.getsockname()[:2]
        _run(service, sock, GRACE_S, lambda: announce(f"http://{f'[{host}]' if ':' in host else host}:{port}"))
    finally:
        sock.close()


def show(
    home: Home, user: str, *, port: int | None, announce: Callable[[str], None], asker: Asker | None = None
) -> None:
    """Shows a home to its user on this machine until SIGTERM or SIGINT.

    `announce` gets an address that lets one browser in. Without a port, it is the usual one, or another if that is
    taken.
    """
    make_service = _import_service()
    from relive.server.access import LocalAccess

    _raise_open_file_limit()
    _return_freed_memory()
    sock = _listen_somewhere() if port is None else _listen("127.0.0.1", port)
    try:
        access = LocalAccess(user, sock.getsockname()[1])
        service = make_service(home, local=access, asker=asker)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/login?ticket={access.ticket}"
        _run(service, sock, UI_GRACE_S, lambda: announce(url))
    finally:
        sock.close()


def _import_service() -> type[Service]:
    try:
        from relive.server.app import Service
    except ImportError as error:
        raise ReliveError(f"{error}; install the server with `pip install 'relive[server]'`") from error
    return Service


def _run(service: Service, sock: socket.socket, grace_s: int, announce: Callable[[], None]) -> None:
    """Serves on a socket until a signal comes; calls `announce` when the signals are handled."""
    import uvicorn

    from relive.server.http import Door, GuardedConnection

    connection: Any = partial(GuardedConnection, door=Door())
    config = uvicorn.Config(
        service.app(), http=connection, ws="none", lifespan="on", log_level="warning", access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=grace_s, backlog=ACCEPTED_AT_ONCE,
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again after a clean shutdown
    announce()
    uvicorn.Server(config).run(sockets=[sock])


class _Listener(socket.socket):
    """A socket whose queue stays long: asyncio sets its length to the number that it accepts in one turn."""

    def listen(self, _at_once: int = BACKLOG, /) -> None:
        super().listen(BACKLOG)


def _listen_somewhere() -> socket.socket:
    """Listens on the usual port of `relive ui`, or on a free one if that is taken."""
    try:
        return _listen("127.0.0.1", UI_PORT)
    except ReliveError:
        return _listen("127.0.0.1", 0)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Without this, the second write of a response (the body) waits up to 40 ms for the ACK of the first.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
        sock.listen()
    except OSError as error:
        raise ReliveError(f"{host}:{port}: {error.strerror}; choose another with --port") from error
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
