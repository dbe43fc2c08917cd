"""Clients that are slow, greedy or malicious hold nobody else up."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
import zstandard

from relive.hashing import digest
from relive.server import Tokens
from relive.store import Home
from relive.store.journal import SLOTS_MAGIC

from .conftest import Server
from .test_bad_runs import end, header, slot
from .test_security import RUN, ask, line, memory, send

# Takes an hour of processor time, and little memory; DuckDB does not look for interrupts meanwhile.
ENDLESS = "levenshtein(repeat('a', 1000000), repeat('b', 1000000)) > 0"
HUGE_LIST = "len(range(60000000)) > 0"


@pytest.fixture
def team(tmp_path, serve: Callable[..., Server]) -> tuple[Server, dict[str, str]]:
    """A server with one run, and the tokens of three people."""
    store = tmp_path / "team"
    words = {name: Tokens(store).create(name, ["write", "read"])[0] for name in ("ada", "bob", "eve")}
    server = serve("--host", "127.0.0.1", store=store)
    lines = header(RUN) + line("name", 2, id=1, name="loss") + end(4)
    slots = SLOTS_MAGIC + slot(1, 0, 0, 5) * 2 + slot(1, 0, 0, 1, 1) + slot(1, 0, 0, 5)
    assert send(server, slots, lines, token=words["ada"])[0] == 200
    return server, words


@contextlib.contextmanager
def many_connections(server: Server, count: int, data: bytes = b"") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            with contextlib.suppress(OSError):  # it may have been closed for a later one
                one.sendall(data)
            opened.append(one)
        yield opened


def log_in(server: Server, token: str) -> int:
    body = f"token={token}".encode()
    return ask(server, "POST", "/login", body, Content_Type="application/x-www-form-urlencoded")[0]


def test_a_slow_login_does_not_keep_others_out(team):
    server, words = team
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\ntoken="
    with many_connections(server, 600, head):
        assert ask(server, "GET", "/health")[0] == 200
        assert ask(server, "GET", "/api/runs", token=words["ada"])[0] == 200
        assert send(server, SLOTS_MAGIC, header("a" * 12), run="a" * 12, token=words["ada"])[0] == 200
        assert log_in(server, words["ada"]) == 303


def test_connections_that_bring_nothing_keep_nobody_out_and_cost_little(team):
    server, words = team
    before = memory(server)
    with many_connections(server, 2_000):
        assert ask(server, "GET", "/api/runs", token=words["ada"])[0] == 200
        assert memory(server) < before + (50 << 20)


def test_slow_bodies_of_one_token_do_not_keep_another_out(team):
    server, words = team
    query = "slots=0&slots_bytes=1000&lines=0&lines_bytes=0&digest=0"
    head = f"POST /api/runs/{RUN}/journals/0?{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {words['eve']}\r\n"
    with many_connections(server, 600, f"{head}Content-Length: 1000\r\n\r\nx".encode()):
        assert ask(server, "GET", "/api/runs", token=words["ada"])[0] == 200
        assert send(server, SLOTS_MAGIC, header("a" * 12), run="a" * 12, token=words["ada"])[0] == 200


def test_long_questions_of_one_token_do_not_hold_another_up(team):
    server, words = team
    path = f"/api/leaderboard?metric=loss&where={quote(ENDLESS)}"
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {words['eve']}\r\n\r\n".encode()
    with many_connections(server, 20, asked) as opened:
        for name in ("ada", "bob"):
            assert ask(server, "GET", "/api/leaderboard?metric=loss", token=words[name])[0] == 200
        opened[0].settimeout(0.01)
        with pytest.raises(TimeoutError):  # still at it
            opened[0].recv(1)


def test_a_question_that_needs_too_much_memory_is_refused_and_others_are_answered(team):
    server, words = team
    statuses: list[int] = []

    def attack() -> None:
        path = f"/api/leaderboard?metric=loss&where={quote(HUGE_LIST)}"
        statuses.append(ask(server, "GET", path, token=words["eve"])[0])

    threads = [threading.Thread(target=attack) for _ in range(4)]
    for thread in threads:
        thread.start()
    answered = [ask(server, "GET", "/api/runs", token=words["ada"])[0] for _ in range(5)]
    for thread in threads:
        thread.join()

    assert answered == [200] * 5
    assert set(statuses) <= {400, 422}


def test_a_question_that_takes_too_long_is_ended(tmp_path, serve: Callable[..., Server]):
    server = serve("--open", "--question-seconds", "1")
    lines = header(RUN) + line("name", 2, id=1, name="loss") + end(4)
    send(server, SLOTS_MAGIC + slot(1, 0, 0, 5) * 2 + slot(1, 0, 0, 1, 1) + slot(1, 0, 0, 5), lines)
    status, answer, _ = ask(server, "GET", f"/api/leaderboard?metric=loss&where={quote(ENDLESS)}")

    assert status == 422
    assert "longer than 1 s" in answer["error"]
    assert ask(server, "GET", "/api/leaderboard?metric=loss")[0] == 200


def test_a_run_that_claims_2_to_the_60_ranks_is_no_burden(tmp_path, serve: Callable[..., Server]):
    home = Home(tmp_path / "team")
    home.create()
    for run, world_size in (("b" * 12, 1 << 60), ("c" * 12, 1_000_000)):
        folder = home.run_folder(run)
        folder.mkdir()
        first = json.loads(header(run)) | {"world_size": world_size}
        (folder / "0.lines").write_bytes(
            json.dumps(first).encode() + b"\n" + line("name", 2, id=1, name="loss") + end(4)
        )
        slots = SLOTS_MAGIC + slot(1, 0, 0, 5) * 2 + slot(1, 0, 0, 1, 1) + slot(1, 0, 0, 5)
        (folder / "0.slots").write_bytes(slots)
    server = serve(store=home.path)

    refused, _, _ = send(server, SLOTS_MAGIC, line("run", 1, run=RUN, wall_ns=1, clock_ns=1, world_size=1 << 60))
    assert refused == 422
    for run in ("b" * 12, "c" * 12):
        status, answer, _ = ask(server, "GET", f"/api/runs/{run}/skew?name=loss")
        assert status < 500
        assert len(answer.get("missing_ranks", [])) <= 1_000


def test_a_line_of_a_million_lists_is_refused(shared: Server):
    wide = line("wonder")[:-2] + b', "x": [' + b",".join([b"[]"] * 1_100_000) + b"]}\n"
    status, answer, _ = send(shared, SLOTS_MAGIC, header("d" * 12) + wide, run="d" * 12)

    assert status == 413
    assert "items" in answer["error"]


def test_a_chunk_that_unpacks_to_600_megabytes_is_sent_in_pieces(shared: Server):
    content = bytes(600 << 20)
    name, file = digest(content), b"\x01" + zstandard.compress(content)
    del content
    assert ask(shared, "PUT", f"/api/chunks/{name}/upload?at=0&size={len(file)}", file)[0] == 200
    before = memory(shared)
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=60)
    connection.request("GET", f"/api/chunks/{name}")
    answer, got, most = connection.getresponse(), 0, 0
    while piece := answer.read(1 << 20):
        got, most = got + len(piece), max(most, memory(shared))
    connection.close()

    assert got == 600 << 20
    assert most < before + (64 << 20)


def stream(server: Server, method: str, path: str, token: str, pieces: int) -> int:
    """Sends a body in chunks of a megabyte, without its length, as far as the server takes it; returns the status."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        with contextlib.suppress(OSError):  # it closes the connection before the end
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            for _ in range(pieces):
                connection.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
            connection.sendall(b"0\r\n\r\n")
        try:
            return int(connection.recv(100).split()[1])
        except (OSError, IndexError):
            return 0  # reset, because bytes were on their way


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/login"),
        ("POST", f"/api/runs/{'e' * 12}/journals/0?slots=0&slots_bytes=0&lines=0&lines_bytes=9&digest=0"),
        ("PUT", f"/api/chunks/{'0' * 64}/upload?at=0&size=600000000"),
    ],
)
def test_a_body_without_a_length_is_cut_at_its_limit(team, method: str, path: str):
    server, words = team
    before = memory(server)

    assert stream(server, method, path, words["eve"], 60) in (413, 0)
    assert memory(server) < before + (64 << 20)
    assert ask(server, "GET", "/api/runs", token=words["ada"])[0] == 200


def test_a_packed_body_that_does_not_say_its_size_is_refused(shared: Server):
    packing = zstandard.ZstdCompressor().compressobj()
    body = b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(100)), packing.flush()])
    before = memory(shared)
    status, answer, _ = send(shared, SLOTS_MAGIC, header("e" * 12), run="e" * 12, body=body, Content_Encoding="zstd")

    assert status == 422
    assert "declares" in answer["error"]
    assert memory(shared) < before + (32 << 20)


def test_json_that_is_nested_a_hundred_thousand_times_is_refused(shared: Server):
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    tag = line("tag", 2)[:-2] + b', "name": "x", "value": ' + deep + b"}\n"

    assert send(shared, SLOTS_MAGIC, header("f" * 12) + tag, run="f" * 12)[0] in (413, 422)
    assert ask(shared, "POST", "/api/chunks/missing", b'{"names": ' + deep + b"}")[0] == 422
    assert ask(shared, "POST", "/api/packs/missing", b'{"packs": ' + deep + b"}")[0] == 422
    assert ask(shared, "POST", "/api/registry/m", deep)[0] == 422
    assert ask(shared, "GET", "/api/runs")[0] == 200
