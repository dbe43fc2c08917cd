"""What holds for all routes: unknown parameters are refused; what the page reads is compressed, and not sent twice."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request

import pytest

from ..conftest import Server
from ..written_runs import write_runs

OF_A_RUN = (
    "", "/series?name=loss", "/skew?name=loss", "/alert?name=loss&above=1", "/config", "/environment", "/data", "/memo",
    "/commands", "/checkpoint-list", "/console", "/artifacts",
)  # fmt: skip
OF_ALL = ("/api/runs", "/api/leaderboard?metric=loss", "/api/registry", "/api/columns", "/api/openapi.json")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    store = tmp_path_factory.mktemp("routes") / "team"
    write_runs(store, 2, steps=300, args={f"arg {n}": n for n in range(100)})
    found = Server(store, "--open").start()
    yield found
    found.kill()


def ask(server: Server, path: str, method: str = "GET", **headers: str):
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    request = urllib.request.Request(f"{server.url}{path}", method=method, headers=names)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def runs_of(server: Server) -> list[str]:
    return [row["run"] for row in json.loads(ask(server, "/api/runs")[2])["runs"]]


def test_what_the_page_reads_is_compressed_and_not_sent_twice(server):
    first, second = runs_of(server)
    paths = [*OF_ALL, f"/api/compare?runs={first},{second}", *(f"/api/runs/{first}{part}" for part in OF_A_RUN)]
    for path in paths:
        status, headers, raw = ask(server, path)
        assert status == 200, (path, raw)
        packed_status, packed_headers, packed = ask(server, path, Accept_Encoding="gzip")
        is_long = len(raw) >= 1_000

        assert packed_status == 200, path
        assert packed_headers.get("Content-Encoding") == ("gzip" if is_long else None), path
        assert json.loads(gzip.decompress(packed) if is_long else packed) == json.loads(raw), path
        assert ask(server, path, If_None_Match=headers["ETag"])[::2] == (304, b""), path


def test_every_route_refuses_parameters_that_it_does_not_know(server):
    run = runs_of(server)[0]
    values = {"run": run, "chunk": "0" * 64, "journal": "0", "pack": "0" * 32, "version": "1"}
    document = json.loads(ask(server, "/api/openapi.json")[2])
    for path, methods in document["paths"].items():
        filled = "/".join(values.get(word[1:-1], "x") if word.startswith("{") else word for word in path.split("/"))
        for method in methods:
            status, _, raw = ask(server, f"{filled}?bogus=1", method.upper())
            assert status == 422, (method, path, status, raw)
            assert "unknown parameter 'bogus'" in json.loads(raw)["error"], path


def test_the_skew_and_the_names_of_a_run_come_in_pages(server):
    run = runs_of(server)[0]
    pages = [json.loads(ask(server, f"/api/runs/{run}/skew?name=loss&limit=200&offset={at}")[2]) for at in (0, 200)]
    none = json.loads(ask(server, f"/api/runs/{run}?limit=0")[2])

    assert [len(page["steps"]) for page in pages] == [200, 100]
    assert {page["total"] for page in pages} == {300}
    assert (none["metrics"], none["total"]) == ([], 1)
    assert ask(server, f"/api/runs/{run}/skew?name=loss&limit=100001")[0] == 422
