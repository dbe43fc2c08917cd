"""The process that `relive serve` is: one event loop on one address, until it is asked to stop."""

from __future__ import annotations

import ctypes
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from relive.errors import ReliveError
from relive.server.tokens import LOOPBACK
from relive.store import Home
from relive.store.catalog import Index

GRACE_S = 10
KEEP_ALIVE_S = 75
BACKLOG = 2048
_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 256 << 10


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How to serve. `is_open` lets everybody on this machine in, without a token."""

    store: Home
    host: str = "127.0.0.1"
    port: int = 5005
    is_open: bool = False


def serve(options: ServerOptions, announce: Callable[[str], None]) -> None:
    """Serve a store until SIGTERM or SIGINT; `announce` is told the address when it can be used."""
    if options.is_open and options.host not in LOOPBACK:
        raise ReliveError(f"--open is for this machine only, not for {options.host}; make tokens with `relive token`")
    try:
        import uvicorn

        from relive.server.app import Service
    except ImportError as error:
        raise ReliveError(f"{error}; install the server with `pip install 'relive[server]'`") from error
    if options.store.settings.catalog:  # a database that can't be used is told now, not when somebody asks
        Index(options.store).close()
    _allow_many_files()
    _give_memory_back()
    sock = _listen(options)
    try:
        service = Service(options.store, is_open=options.is_open)
        config = uvicorn.Config(
            service.app(), log_level="warning", access_log=False, server_header=False, lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=GRACE_S, backlog=BACKLOG,
        )  # fmt: skip
        host, port = sock.getsockname()[:2]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # the server raises it once more when it has stopped in good order
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        uvicorn.Server(config).run(sockets=[sock])
    finally:
        sock.close()


def _listen(options: ServerOptions) -> socket.socket:
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Head and body of an answer are two writes: else the second waits 40 ms until the first is acknowledged.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((options.host, options.port))
        sock.listen(BACKLOG)
    except OSError as error:
        raise ReliveError(f"{options.host}:{options.port}: {error.strerror}; choose another with --port") from error
    return sock


def _give_memory_back() -> None:
    """Ranges and tables of megabytes come and go: their memory is the system's again when they are freed."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc's; others do so anyway
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _allow_many_files() -> None:
    """A connection is a file, and 400 runs of 8 ranks are 3,200 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
