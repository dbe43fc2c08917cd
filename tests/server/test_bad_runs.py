"""One bad run never takes the others down: what is no record is refused, and what got in is set aside."""

from __future__ import annotations

from collections.abc import Callable

from relive.store.journal import SLOTS_MAGIC

from .conftest import Server
from .test_security import ask, line, send

GOOD, BAD = "0123456789ab", "ba0000000000"


def header(run: str) -> bytes:
    return line("run", 1, run=run, wall_ns=1, clock_ns=1)


def end(seq: int = 3) -> bytes:
    return line("end", seq, outcome="finished")


def indexed_runs(server: Server) -> set[str]:
    status, told, _ = ask(server, "GET", "/api/runs")
    assert status == 200, told
    return {row["run"] for row in told["runs"]}


def test_a_tag_without_a_name_is_refused_and_the_server_goes_on(serve: Callable[..., Server]):
    server = serve()
    status, told, _ = send(server, SLOTS_MAGIC, header(BAD) + line("tag", value=1) + end(), run=BAD)

    assert status == 422
    assert "tag" in told["error"]
    assert send(server, SLOTS_MAGIC, header(GOOD) + end(2), run=GOOD)[0] == 200
    assert indexed_runs(server) == {GOOD}
