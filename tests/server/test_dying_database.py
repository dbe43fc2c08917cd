"""A catalog in PostgreSQL that dies, freezes or comes back while the server uses it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.server import Tokens
from relive.store.journal import SLOTS_MAGIC

from .conftest import Server
from .test_bad_runs import end, header, slot
from .test_security import RUN, ask, line, send

pytestmark = pytest.mark.slow
READS = ("/api/runs", f"/api/runs/{RUN}", f"/api/runs/{RUN}/series?name=loss", "/api/leaderboard?metric=loss")


@pytest.fixture
def team(tmp_path: Path, serve: Callable[..., Server], postgres: Any) -> Iterator[tuple[Server, str]]:
    store = tmp_path / "team"
    token = Tokens(store).create("ada", ["write", "read"])[0]
    options = ("--host", "127.0.0.1", "--question-seconds", "8")
    server = serve(*options, store=store, env={"RELIVE_CATALOG": postgres.url()})
    lines = header(RUN) + line("name", 2, id=1, name="loss") + end(4)
    slots = SLOTS_MAGIC + slot(1, 0, 0, 5) * 2 + slot(1, 0, 0, 1, 1) + slot(1, 0, 0, 5)
    assert send(server, slots, lines, token=token)[0] == 200
    yield server, token
    if postgres.process is None:
        postgres.start()


def begin_run(server: Server, token: str, run: str) -> int:
    return send(server, SLOTS_MAGIC, header(run), run=run, token=token)[0]


def kill(postgres: Any) -> None:
    """Ends all processes of the database at once, as if its machine had died."""
    for pid in database_processes(postgres):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    postgres.process.wait(60)
    postgres.process = None


def database_processes(postgres: Any) -> list[int]:
    """The main process first, so that it starts no others."""
    main = postgres.process.pid
    return [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]


def test_a_database_that_dies_while_it_answers_costs_no_range_and_no_500(team, postgres):
    server, token = team
    statuses: list[int] = []

    def read(path: str) -> None:
        statuses.extend(ask(server, "GET", path, token=token)[0] for _ in range(5))

    threads = [threading.Thread(target=read, args=(path,)) for path in READS]
    for thread in threads:
        thread.start()
    kill(postgres)
    sent = [begin_run(server, token, f"{number:012x}") for number in range(20)]
    postgres.start()
    for thread in threads:
        thread.join()

    assert sent == [200] * 20
    assert set(statuses) <= {200, 503}
    assert [ask(server, "GET", path, token=token)[0] for path in READS] == [200] * len(READS)
    assert ask(server, "GET", "/api/runs", token=token)[1]["total"] == 21


def test_without_its_database_the_server_says_so_and_takes_what_is_sent(team, postgres):
    server, token = team
    kill(postgres)
    status, answer, headers = ask(server, "GET", "/api/runs", token=token)

    assert status == 503
    assert answer["error"] == "the catalog can't be reached; retry later"
    assert headers["retry-after"] == "10"
    assert begin_run(server, token, "a" * 12) == 200
    assert ask(server, "GET", "/health")[0] == 200


def test_a_database_that_freezes_holds_up_questions_only(team, postgres):
    server, token = team
    assert ask(server, "GET", "/api/runs", token=token)[0] == 200
    frozen = database_processes(postgres)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert ask(server, "GET", "/api/runs", token=token)[0] in (422, 503)
        assert begin_run(server, token, "a" * 12) == 200
        assert ask(server, "GET", "/health")[0] == 200
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)

    assert ask(server, "GET", "/api/runs", token=token)[0] == 200
