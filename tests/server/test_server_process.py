"""How the server listens."""

from __future__ import annotations

import socket

from relive.server.server_process import _listen


def test_an_answer_does_not_wait_until_its_head_is_acknowledged():
    with (
        _listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
