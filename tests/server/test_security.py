"""Nobody gets in without a token, nobody writes what isn't a journal, and nothing makes the server swell."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import xxhash
import zstandard

from relive.server import Tokens
from relive.store import Home
from relive.store.journal import SLOTS_MAGIC

from .conftest import Server

RUN = "0123456789ab"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory):
    """A server with a token for each scope."""
    store = tmp_path_factory.mktemp("guarded") / "team"
    words = {scope: Tokens(store).create(f"a {scope}er", [scope])[0] for scope in ("read", "write", "promote", "admin")}
    server = Server(store, "--host", "127.0.0.1").start()
    yield server, words
    server.kill()


def ask(
    server: Server, method: str, path: str, body: bytes | None = None, *, token: str | None = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        given["Authorization"] = f"Bearer {token}"
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    raw = answer.read()
    connection.close()
    is_json = answer.headers.get("Content-Type") == "application/json"
    return answer.status, json.loads(raw) if is_json else raw, dict(answer.headers)


def line(k: str = "note", seq: int = 2, **content: Any) -> bytes:
    return json.dumps({"v": 1, "seq": seq, "t": 1, "k": k, "loop": 1, "i": 0, **content}).encode() + b"\n"


HEADER = line("run", 1, run=RUN, wall_ns=1, clock_ns=1)


def send(
    server: Server, slots: bytes = b"", lines: bytes = b"", *, at: tuple[int, int] = (0, 0), run: str = RUN,
    journal: str = "0", body: bytes | None = None, token: str | None = None, digest: str | None = None, **headers: str,
) -> tuple[int, Any, dict[str, str]]:  # fmt: skip
    plain = slots + lines
    query = (
        f"slots={at[0]}&slots_bytes={len(slots)}&lines={at[1]}&lines_bytes={len(lines)}"
        f"&digest={digest or xxhash.xxh3_128_hexdigest(plain)}"
    )
    path = f"/api/runs/{run}/journals/{journal}?{query}"
    return ask(server, "POST", path, plain if body is None else body, token=token, **headers)


READS = ["/metrics", "/api/runs", f"/api/runs/{RUN}", f"/api/runs/{RUN}/series?name=a", f"/api/chunks/{'0' * 64}"]
WRITES = [f"/api/runs/{RUN}/journals/0", f"/api/chunks/{'0' * 64}/upload"]


@pytest.mark.parametrize("path", [*READS, *WRITES])
def test_without_a_token_only_health_is_served(guarded, path: str):
    server, words = guarded

    assert ask(server, "GET", "/health")[:2] == (200, {"status": "ok"})
    for wrong in (None, "x", "relive_1_2", words["read"][:-1], words["read"] + "x", words["admin"].upper()):
        status, told, _ = ask(server, "GET", path, token=wrong)
        assert status == 401
        assert "RELIVE_TOKEN" in told["error"]


def test_a_token_is_valid_for_its_scopes_only(guarded):
    server, words = guarded
    for path, scope in [*((path, "read") for path in READS), *((path, "write") for path in WRITES)]:
        allowed = {word for word in words if ask(server, "GET", path, token=words[word])[0] != 403}
        assert allowed == {scope, "admin"}, path


def test_a_revoked_token_is_refused_at_once(guarded):
    server, _ = guarded
    word, token = Tokens(server.store).create("a guest", ["read"])

    assert ask(server, "GET", "/api/runs", token=word)[0] == 200
    Tokens(server.store).remove(token.id)
    assert ask(server, "GET", "/api/runs", token=word)[0] == 401


def test_tokens_are_kept_as_hashes_that_others_can_not_read(tmp_path: Path):
    word, token = Tokens(tmp_path).create("ada", ["write"])
    stored_files = (tmp_path / "tokens.json").read_text()

    assert word.rsplit("_", 1)[1] not in stored_files
    assert token.hash in stored_files
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0
    assert Tokens(tmp_path).find(word) == token
    assert Tokens(tmp_path).find(word[:-1] + ("a" if word[-1] != "a" else "b")) is None


def stored_files(store: Path) -> list[str]:
    """The files of a store, without the index, which a background thread builds."""
    return sorted(path.name for path in store.rglob("*") if store / "index" not in (path, *path.parents))


@pytest.mark.parametrize("journal", ["../../x", "..%2f..%2fx", "00", "-1", "1-", "0-0", "0.lines", "٣", "9999999"])
def test_only_journals_can_be_written(shared, journal: str):
    before = stored_files(shared.store)
    status, _, _ = send(shared, SLOTS_MAGIC, HEADER, journal=journal.replace("٣", "%D9%A3"))

    assert status in (404, 405)
    assert stored_files(shared.store) == before


@pytest.mark.parametrize(
    ("slots", "lines"),
    [
        (SLOTS_MAGIC[:-1], HEADER),
        (b"x" * 24, HEADER),
        (SLOTS_MAGIC + (b"\xff" * 24), HEADER),  # a loop number that would need a table of gigabytes
        (SLOTS_MAGIC, HEADER[:-1]),
        (SLOTS_MAGIC, b"no json\n"),
        (SLOTS_MAGIC, b"[]\n"),
        (SLOTS_MAGIC, b"{}\n"),
        (SLOTS_MAGIC, line("run", 1, run="ffffffffffff", wall_ns=1, clock_ns=1)),
        (SLOTS_MAGIC, line("note")),
        (SLOTS_MAGIC, HEADER + line("name", id=1, name="x" * 2_000)),
        (SLOTS_MAGIC, HEADER + line("name", id=1 << 30, name="x")),
        (SLOTS_MAGIC, HEADER + line("end", outcome=3)),
        (SLOTS_MAGIC, HEADER + line("log", name="loss", value=1)),
        (SLOTS_MAGIC, HEADER + line("deep")[:-2] + b',"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n"),
        (SLOTS_MAGIC, HEADER.replace(b'"v": 1', b'"v": 2')),
    ],
)
def test_bytes_that_are_not_a_journal_are_refused(shared, slots: bytes, lines: bytes):
    status, told, _ = send(shared, slots, lines, run="aaaaaaaaaaaa")

    assert status == 422
    assert told["error"]
    assert "aaaaaaaaaaaa" not in Home(shared.store).run_ids()


def test_bytes_that_were_changed_on_the_way_are_refused(shared):
    assert send(shared, SLOTS_MAGIC, HEADER, run="bbbbbbbbbbbb", digest="0" * 32)[0] == 422
    assert "bbbbbbbbbbbb" not in Home(shared.store).run_ids()


def test_a_decompression_bomb_is_refused_before_it_is_decompressed(shared):
    bomb = zstandard.compress(bytes(1 << 30))
    before = memory(shared)

    status, told, _ = send(shared, SLOTS_MAGIC, HEADER, run="cccccccccccc", body=bomb, Content_Encoding="zstd")
    assert status == 422
    assert "announced" in told["error"]
    assert memory(shared) < before + (50 << 20)


def test_a_chunk_that_does_not_match_its_hash_is_refused_and_discarded(shared):
    name, file = "d" * 64, b"\x01" + zstandard.compress(bytes(1 << 28))
    before = memory(shared)
    path = f"/api/chunks/{name}/upload"

    status, told, _ = ask(shared, "PUT", f"{path}?at=0&size={len(file)}", file)
    assert status == 422
    assert "don't match its name" in told["error"]
    assert ask(shared, "GET", path)[1] == {"complete": False, "at": 0}
    assert memory(shared) < before + (50 << 20)


@pytest.mark.parametrize("name", ["..", "%2e%2e%2f%2e%2e%2ftokens.json", "A" * 64, "0" * 63])
def test_chunks_are_confined_by_their_hash(shared, name: str):
    for method, path in (("GET", ""), ("GET", "/upload"), ("PUT", "/upload?at=0&size=1")):
        status, _, _ = ask(shared, method, f"/api/chunks/{name}{path}", b"x" if method == "PUT" else None)
        assert status in (404, 405)


def test_a_body_that_is_too_long_is_refused_while_it_arrives(shared):
    connection = socket.create_connection(("127.0.0.1", shared.port))
    head = f"POST /api/runs/{RUN}/journals/0?slots=0&slots_bytes=1&lines=0&lines_bytes=1&digest=0 HTTP/1.1\r\n"
    connection.sendall(f"{head}Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    sent = 0
    try:
        while sent < 200 << 20:
            connection.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
            sent += 1 << 20
    except OSError:
        pass
    connection.close()

    assert sent < 100 << 20
    assert memory(shared) < 300 << 20


def test_a_page_of_another_site_can_do_nothing(shared):
    assert ask(shared, "POST", "/api/chunks/missing", b"{}", Origin="http://evil.example")[0] == 403
    assert ask(shared, "GET", "/api/runs", Host="evil.example")[0] == 403
    assert ask(shared, "POST", "/api/chunks/missing", b'{"names":[]}', Origin=shared.url)[0] in (200, 403)


def test_the_log_holds_no_secrets(tmp_path: Path):
    store = tmp_path / "team"
    word, _ = Tokens(store).create("ada", ["admin"])
    server = Server(store, "--host", "127.0.0.1").start()
    ask(server, "GET", "/api/runs", token=word)
    ask(server, "GET", f"/api/runs?search={word}", token=word)
    ask(server, "POST", "/api/chunks/missing", b"{", token=word)
    code, said = server.stop()

    assert code == 0
    assert word not in said


def test_an_open_server_is_for_its_own_machine(script):
    done = script.relive("serve", "--store", "team", "--open", "--host", "0.0.0.0", check=False)

    assert done.returncode == 1
    assert "this machine only" in done.stderr


def test_a_stopping_server_finishes_what_it_began(serve):
    server = serve()
    statuses: list[int] = []

    def work(run: str) -> None:
        with contextlib.suppress(OSError):  # who comes too late finds nobody
            statuses.append(send(server, SLOTS_MAGIC, HEADER.replace(RUN.encode(), run.encode()), run=run)[0])

    threads = [threading.Thread(target=work, args=(f"{n:012x}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    while not statuses:
        time.sleep(0.001)
    code, said = server.stop()
    for thread in threads:
        thread.join()

    assert (code, said) == (0, "")
    assert (server.store / "redo.log").stat().st_size == 0
    assert len(Home(server.store).run_ids()) >= statuses.count(200) > 0


def memory(server: Server) -> int:
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
