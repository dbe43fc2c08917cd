"""A proxy that loses, doubles, cuts and delays HTTP requests, as networks and impatient proxies do."""

from __future__ import annotations

import contextlib
import random
import socket
import socketserver
import threading
import time
from collections import Counter


class BadNetwork:
    """Stands between clients and a server. `chances` are those of each mishap, for every request."""

    def __init__(self, port: int, seed: int, **chances: float) -> None:
        self.target = ("127.0.0.1", port)
        self.chance = random.Random(seed)
        self.chances = chances
        self.happened: Counter[str] = Counter()
        outer = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    while outer._pass_on(self.request):
                        pass

        class Proxy(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

        self._proxy = Proxy(("127.0.0.1", 0), Connection)
        self.url = f"http://127.0.0.1:{self._proxy.server_address[1]}"
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()

    def _mishap(self) -> str:
        rolled = self.chance.random()
        for name, chance in self.chances.items():
            rolled -= chance
            if rolled < 0:
                self.happened[name] += 1
                return name
        self.happened["none"] += 1
        return "none"

    def _pass_on(self, client: socket.socket) -> bool:
        """One request and its answer; False when the connection is over."""
        request = _message(client)
        if not request:
            return False
        mishap = self._mishap()
        if mishap == "lose request":
            return False
        if mishap == "cut request":
            self._send(request[: self.chance.randrange(len(request))], read=False)
            return False
        if mishap == "delay":
            time.sleep(self.chance.random() * 0.2)
        answer = self._send(request)
        if mishap == "double":
            answer = self._send(request)
        if mishap == "lose answer":
            return False
        client.sendall(answer)
        return bool(answer)

    def _send(self, request: bytes, *, read: bool = True) -> bytes:
        with socket.create_connection(self.target, timeout=10) as server:
            server.sendall(request)
            return _message(server) if read else b""


def _message(sock: socket.socket) -> bytes:
    """A whole HTTP message with the length in its head."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [row.split(b":")[1] for row in head.lower().split(b"\r\n") if row.startswith(b"content-length:")]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        piece = sock.recv(min(missing, 65536))
        if not piece:
            return b""
        data, missing = data + piece, missing - len(piece)
    return data
