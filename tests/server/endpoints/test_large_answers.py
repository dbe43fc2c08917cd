"""Runs with 100,000 args and thousands of packages, and models with 10,000 versions: each answer is a page."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.query import ServerRuns
from relive.store import Home
from relive.store.catalog import Index
from relive.store.ledger import append_lines
from relive.store.sync import RemoteRegistry, ServerClient

from ..conftest import Server
from ..written_runs import write_runs

pytestmark = pytest.mark.long

ARGS, PACKAGES, VERSIONS = 100_000, 5_000, 10_000
MAX_BYTES = 3_000_000


def filled(store: Path, args: int, packages: int, versions: int) -> Server:
    """Returns a server with two runs that differ in their packages and in an arg, and a model."""
    for version in ("1.0", "2.0"):
        installed = {f"package{n}": version for n in range(packages)}
        given = {f"arg{n}": n for n in range(args)}
        write_runs(store, args={**given, "of": version, "text": "x" * 200_000}, packages=installed)
    run = Home(store).run_ids()[0]
    append_lines(Home(store).registry / "net.lines", lambda _: [_version_line(run, n + 1) for n in range(versions)])
    Index(Home(store)).refresh()
    return Server(store, "--open").start()


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Iterator[Server]:
    server = filled(tmp_path_factory.mktemp("large") / "team", ARGS, PACKAGES, VERSIONS)
    yield server
    server.kill()


def _version_line(run: str, number: int) -> dict[str, Any]:
    facts = {"artifact": None, "args": {}, "code": {}, "data_version": None, "metrics": {"loss": {"last": 0.5}}}
    environment = {"python": "3.11", "packages": {f"package{n}": "1.0" for n in range(50)}}
    line = {"k": "version", "t": number, "by": "ann", "version": number, "run": run}
    return {**line, **facts, "environment": environment}


def ask(server: Server, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}{path}", timeout=60) as answer:
        content = answer.read()
    assert len(content) < MAX_BYTES, path
    return json.loads(content)


def runs_of(server: Server) -> list[str]:
    return [one["run"] for one in ask(server, "/api/runs")["runs"]]


def test_args_and_packages_of_a_run_are_paged(large):
    run, other = runs_of(large)
    whole = ask(large, f"/api/runs/{run}")
    config = ask(large, f"/api/runs/{run}/config?offset=99990&limit=20")
    environment = ask(large, f"/api/runs/{run}/environment?against={other}&offset=4990")
    last = ask(large, f"/api/runs/{run}/environment?offset={PACKAGES}")

    assert whole["totals"] == {"args": ARGS + 3, "packages": PACKAGES}
    assert len(whole["record"]["config"]["args"]) == 1_000
    assert (config["total"], len(config["args"])) == (ARGS + 3, 13)
    assert config["args"]["text"]["value"].endswith("…")
    assert (environment["total"], environment["changed_total"]) == (PACKAGES, PACKAGES)
    assert (len(environment["packages"]), len(environment["changed"])) == (10, 10)
    assert last["packages"] == {}


def test_what_differs_between_large_runs_comes_first(large):
    found = ask(large, f"/api/compare?runs={','.join(runs_of(large))}&limit=10")

    assert found["totals"] == {"args": ARGS + 3, "metrics": 1}
    assert [row["name"] for row in found["args"] if row["differs"]] == ["of"]
    assert found["args"][0]["name"] == "of"


def test_versions_of_a_model_are_paged(large):
    (listed,) = ask(large, "/api/registry?versions=1")["models"]
    model = ask(large, "/api/registry/net?limit=3&offset=10")

    assert (listed["total"], [one["version"] for one in listed["versions"]]) == (VERSIONS, [VERSIONS])
    assert [one["version"] for one in model["versions"]] == [VERSIONS - 10, VERSIONS - 11, VERSIONS - 12]
    assert [one["version"] for one in model["history"]] == [VERSIONS - 12, VERSIONS - 11, VERSIONS - 10]
    assert (model["total"], model["history_total"]) == (VERSIONS, VERSIONS)
    assert "packages" not in model["versions"][0]["environment"]


def test_the_command_line_reads_all_pages(tmp_path):
    server = filled(tmp_path / "team", 2_500, 1_200, 2_500)
    remote = ServerClient(server.url, "", keeps_open=True)
    try:
        run, other = runs_of(server)
        record = ServerRuns(remote).get_run(run).record
        compared = ServerRuns(remote).compare([run, other])
        registry = RemoteRegistry(remote)
        (listed,), model = registry.models(), registry.model("net")
    finally:
        remote.close()
        server.kill()

    assert list(record.config["args"]) == ["number", *(f"arg{n}" for n in range(2_500)), "of", "text"]
    assert len(record.environment["packages"]) == 1_200
    assert len(compared["args"]) == 2_503
    assert len(listed.versions) == 2_500
    assert [one.version for one in model.versions] == list(range(1, 2_501))
    assert [one["version"] for one in model.events] == list(range(1, 2_501))
