"""The processes that answer questions: limits on time and memory, clients that leave, processes that die."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from relive.errors import QueryError
from relive.server.http import LEASE, Admission, HttpError
from relive.server.questions import QuestionLimits, ReaderPool
from relive.store import Home

# Questions are functions that a process of the pool imports.
QUESTIONS = """
import os, time
from relive.errors import QueryError

def say(index, word):
    return word

def sleep(index, seconds):
    time.sleep(seconds)

def compute(index):
    while True:
        pass

def take_memory(index, size):
    return len(bytearray(size))

def die(index):
    os._exit(9)

def fail(index):
    raise QueryError("so it is")
"""


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "asked_questions.py").write_text(QUESTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "asked_questions", raising=False)
    return importlib.import_module("asked_questions")


@pytest.fixture
def with_pool(tmp_path: Path) -> Callable[..., Any]:
    def run(work: Callable[[ReaderPool], Coroutine[Any, Any, Any]], **limits: Any) -> Any:
        home = Home(tmp_path / "home")
        home.create()

        async def begin() -> Any:
            pool = ReaderPool(home, QuestionLimits(**limits))
            try:
                return await work(pool)
            finally:
                await asyncio.to_thread(pool.close)

        return asyncio.run(begin())

    return run


def request(who: str = "ada", *, leaves: bool = False) -> Request:
    async def receive() -> dict[str, Any]:
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", LEASE: Admission().admit(who)}, receive)


async def give_up(asked: list[asyncio.Future[bytes]]) -> None:
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


def test_a_process_that_dies_is_replaced(with_pool, questions):
    async def work(pool: ReaderPool) -> bytes:
        with pytest.raises(HttpError) as caught:
            await pool.ask(request(), questions.die)
        assert caught.value.status == 503
        return await pool.ask(request(), questions.say, "here")

    assert with_pool(work) == b'"here"'


def test_there_are_never_more_readers_than_the_limit(with_pool, questions):
    async def work(pool: ReaderPool) -> int:
        for n in range(20):  # one after the other, while readers for more at once are being started
            await pool.ask(request(), questions.say, n)
        while len(asyncio.all_tasks()) > 1:  # those that start readers in advance
            await asyncio.sleep(0.05)
        return len(multiprocessing.active_children())

    before = len(multiprocessing.active_children())
    assert with_pool(work, readers=3) - before <= 3


def test_a_question_beyond_its_memory_is_refused_and_the_next_is_answered(with_pool, questions):
    async def work(pool: ReaderPool) -> bytes:
        with pytest.raises(HttpError) as caught:
            await pool.ask(request(), questions.take_memory, 1 << 30)
        assert caught.value.status == 422
        assert "--question-memory" in str(caught.value)
        return await pool.ask(request(), questions.take_memory, 1 << 20)

    assert with_pool(work, memory_bytes=128 << 20) == b"1048576"


def test_a_question_whose_client_has_gone_is_given_up(with_pool, questions):
    async def work(pool: ReaderPool) -> bytes:
        with pytest.raises(HttpError, match="closed the connection"):
            await pool.ask(request(leaves=True), questions.sleep, 3600)
        return await pool.ask(request(), questions.say, "here")

    assert with_pool(work, readers=1, seconds=3600) == b'"here"'


def test_long_questions_make_room_when_all_readers_are_taken(with_pool, questions):
    async def work(pool: ReaderPool) -> bytes:
        long = [asyncio.ensure_future(pool.ask(request(who), questions.compute)) for who in ("eve", "mallory")]
        await asyncio.sleep(0)
        body = await pool.ask(request("ada"), questions.say, "here")
        ended, _ = await asyncio.wait(long, return_when=asyncio.FIRST_COMPLETED)
        assert {one.exception().status for one in ended} == {503}
        await give_up(long)
        return body

    assert with_pool(work, readers=2, seconds=3600) == b'"here"'


def test_one_token_does_not_get_all_readers(with_pool, questions):
    async def work(pool: ReaderPool) -> bytes:
        long = [asyncio.ensure_future(pool.ask(request("eve"), questions.sleep, 3600)) for _ in range(50)]
        await asyncio.sleep(0)
        body = await pool.ask(request("ada"), questions.say, "here")
        assert not any(one.done() for one in long)
        await give_up(long)
        return body

    assert with_pool(work, readers=2, seconds=3600) == b'"here"'


def test_an_error_of_a_question_is_that_of_the_store(with_pool, questions):
    async def work(pool: ReaderPool) -> None:
        with pytest.raises(QueryError, match="so it is"):
            await pool.ask(request(), questions.fail)

    with_pool(work)
