"""Bodies are bounded as a whole: in time, however steadily they drip, and in memory, per token."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zstandard
from starlette.requests import Request

import relive.server.http.admission as admission
import relive.server.http.request_body as request_body
from relive.server.http import LEASE, Admission, HttpError, decompress_body, read_body


def dripping(pieces: list[bytes], pause_s: float, lease: Any) -> Request:
    waiting = list(pieces)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause_s)
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    return Request({"type": "http", "method": "POST", "headers": [], LEASE: lease}, receive)


def test_a_body_that_drips_is_given_up_although_each_piece_is_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_body, "BODY_S", 0.2)

    async def work() -> None:
        lease = Admission().admit("eve")
        with pytest.raises(HttpError) as caught:
            await read_body(dripping([b"x"] * 1_000, 0.02, lease))
        assert caught.value.status == 408

    asyncio.run(work())


def test_a_long_body_that_comes_fast_enough_has_more_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_body, "BODY_S", 0.2)

    async def work() -> int:
        pieces = [bytes(100_000)] * 20
        return len(await read_body(dripping(pieces, 0.02, Admission().admit("ada"))))

    assert asyncio.run(work()) == 2_000_000


def test_bytes_of_one_token_leave_room_for_those_of_another():
    office = Admission()
    greedy, honest = [office.admit("eve") for _ in range(10)], office.admit("ada")
    for lease in greedy[:3]:
        lease.hold(20 << 20)
    with pytest.raises(HttpError) as caught:
        greedy[3].hold(20 << 20)
    honest.hold(20 << 20)

    assert caught.value.status == 503
    for lease in (*greedy, honest):
        lease.release()
    assert not office.held_bytes
    assert office.in_flight == 0


def test_requests_of_one_token_leave_room_for_those_of_another():
    office = Admission()
    for _ in range(admission.MAX_TOKEN_REQUESTS):
        office.admit("eve")
    with pytest.raises(HttpError):
        office.admit("eve")

    assert office.admit("ada")


def test_bodies_are_unpacked_in_several_threads_at_once():
    bodies = [random.Random(n).randbytes(50_000) * 20 for n in range(8)]
    sent = [zstandard.compress(body, 1) for body in bodies]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: decompress_body(sent[n % 8], "zstd", len(bodies[n % 8])), range(400)))

    assert all(found[n] == bodies[n % 8] for n in range(400))
