"""Connections have deadlines, and those of strangers make room for others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn

import relive.server.http.connection_guard as connection_guard
from relive.server.http import CONNECTION, Door, GuardedConnection

BIG = b"x" * (8 << 20)


async def app(scope: Any, _receive: Any, send: Any) -> None:
    if scope["path"] == "/known":
        scope[CONNECTION].identify("ada")
    body = BIG if scope["path"] == "/big" else b"ok"
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
    await scope[CONNECTION].drained()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    for name, value in {"HEAD_S": 0.3, "STALL_S": 0.3, "MIN_BYTES_PER_S": 1 << 30, "MAX_STRANGERS": 5}.items():
        monkeypatch.setattr(connection_guard, name, value)
    listening = socket.create_server(("127.0.0.1", 0))
    kind: Any = partial(GuardedConnection, door=Door())
    server = uvicorn.Server(uvicorn.Config(app, http=kind, lifespan="off", log_level="warning"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


def connect(port: int, data: bytes = b"") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), timeout=30)
    opened.sendall(data)
    return opened


def is_closed(opened: socket.socket) -> bool:
    """Waits until the server closes a connection."""
    with contextlib.suppress(ConnectionError):
        while opened.recv(1 << 16):
            pass
    return True


def is_answered(opened: socket.socket) -> bool:
    got = b""
    while not got.endswith(b"ok") and (piece := opened.recv(1 << 16)):
        got += piece
    return got.endswith(b"ok")


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.parametrize("data", [b"", b"GET / HT", get("/") + b"GET / HTTP/1.1\r\nHos"])
def test_a_head_that_does_not_come_is_not_waited_for(port: int, data: bytes):
    with connect(port, data) as opened:
        assert is_closed(opened)


def test_an_answer_that_is_not_read_is_given_up(port: int):
    with connect(port, get("/big")) as opened:
        time.sleep(1.0)
        got = 0
        with contextlib.suppress(ConnectionError):
            while piece := opened.recv(1 << 16):
                got += len(piece)

        assert got < len(BIG)


def test_the_oldest_stranger_makes_room_for_another_and_who_is_known_stays(port: int):
    with contextlib.ExitStack() as stack:
        known = stack.enter_context(connect(port, get("/known")))
        assert is_answered(known)
        strangers = [stack.enter_context(connect(port, get("/"))) for _ in range(5)]
        for one in strangers:
            assert is_answered(one)
        newest = stack.enter_context(connect(port, get("/")))

        assert is_answered(newest)
        assert is_closed(strangers[0])
        known.sendall(get("/"))
        assert is_answered(known)
