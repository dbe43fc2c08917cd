"""A secret that slipped into a run is removed from the server too, by its owner only, and without a trace of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from relive.cli import main
from relive.server import Tokens
from relive.store.journal import SLOTS_MAGIC
from relive.store.sync import read_audit

from .conftest import Server
from .test_bad_runs import end, header
from .test_security import RUN, ask, line, send

SECRET = "hunter2-in-clear"


@pytest.fixture
def team(tmp_path: Path, serve: Callable[..., Server]) -> tuple[Server, dict[str, str]]:
    """A server with one run of ada's, which has a secret in a tag."""
    store = tmp_path / "team"
    words = {name: Tokens(store).create(name, ["write", "read"])[0] for name in ("ada", "eve")}
    words["root"] = Tokens(store).create("root", ["admin"])[0]
    server = serve("--host", "127.0.0.1", store=store)
    lines = header(RUN) + line("tag", 2, name="url", value=f"https://me:{SECRET}@db") + end(3)
    assert send(server, SLOTS_MAGIC, lines, token=words["ada"])[0] == 200
    return server, words


def scrub(server: Server, token: str, pattern: str = "hunter2[a-z-]*", run: str = RUN, **more: bool):
    body = json.dumps({"pattern": pattern, **more}).encode()
    return ask(server, "POST", f"/api/runs/{run}/scrub", body, token=token)


def files_with_secret(store: Path) -> list[str]:
    found = []
    for path in store.rglob("*"):
        try:
            if path.is_file() and SECRET.encode() in path.read_bytes():
                found.append(path.name)
        except FileNotFoundError:  # of the index, which is being rebuilt
            continue
    return found


def wait_until_gone(store: Path) -> list[str]:
    deadline = time.monotonic() + 60
    while (found := files_with_secret(store)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("who", ["ada", "root"])
def test_the_owner_or_an_admin_removes_a_text_from_every_file_of_the_server(team, who: str):
    server, words = team
    assert ask(server, "GET", "/api/runs", token=words["ada"])[0] == 200
    status, answer, _ = scrub(server, words[who])

    assert (status, answer["places"], answer["files"]) == (200, 1, ["0.lines"])
    assert wait_until_gone(server.store) == []
    tags = ask(server, "GET", f"/api/runs/{RUN}", token=words["ada"])[1]["record"]["tags"]
    assert tags == {"url": "https://me:***@db"}


def test_it_is_audited_without_the_text_and_without_the_pattern(team):
    server, words = team
    scrub(server, words["ada"])
    scrub(server, words["eve"])
    _, said = server.stop()
    events = read_audit(server.store)

    assert [(one["event"], one["name"], one["run"]) for one in events] == [
        ("scrubbed", "ada", RUN), ("scrub-refused", "eve", RUN)
    ]  # fmt: skip
    assert events[0]["places"] == 1
    assert "hunter2" not in json.dumps(events) + said


def test_others_may_not(team):
    server, words = team
    status, answer, _ = scrub(server, words["eve"])

    assert status == 403
    assert "belongs to" in answer["error"]
    assert "0.lines" in files_with_secret(server.store)


def test_nothing_is_changed_when_only_asked(team):
    server, words = team
    status, answer, _ = scrub(server, words["ada"], dry_run=True)

    assert (status, answer["places"]) == (200, 1)
    assert "0.lines" in files_with_secret(server.store)
    assert read_audit(server.store) == []


def test_a_run_that_is_live_is_refused_and_goes_on(team):
    server, words = team
    run = "a" * 12
    lines = header(run)
    send(server, SLOTS_MAGIC, lines, run=run, token=words["ada"])
    more = line("tag", 2, name="x", value=SECRET)

    assert scrub(server, words["ada"], run=run)[0] == 422
    assert send(server, b"", more, at=(len(SLOTS_MAGIC), len(lines)), run=run, token=words["ada"])[0] == 200


@pytest.mark.parametrize("pattern", ["", "x" * 1_001, "(", "a*"])
def test_patterns_that_are_none_are_refused(team, pattern: str):
    server, words = team
    assert scrub(server, words["ada"], pattern)[0] == 422


def test_a_pattern_that_never_ends_is_ended(tmp_path: Path, serve: Callable[..., Server]):
    server = serve("--open", "--question-seconds", "2")
    lines = header(RUN) + line("tag", 2, name="x", value="a" * 60) + end(3)
    send(server, SLOTS_MAGIC, lines)

    assert scrub(server, "", "(a+)+$b")[0] == 422
    assert ask(server, "GET", "/api/runs")[0] == 200
    assert send(server, SLOTS_MAGIC, lines)[0] == 200


def test_the_command_scrubs_home_and_server_to_equal_bytes(team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    server, words = team
    monkeypatch.setenv("RELIVE_TOKEN", words["ada"])
    home = tmp_path / "home"
    fetch = ["fetch", RUN, "--server", server.url, "--home", str(home)]
    assert CliRunner().invoke(main, fetch).exit_code == 0
    done = CliRunner().invoke(main, ["scrub", RUN, SECRET, "--server", server.url, "--home", str(home)])

    assert done.exit_code == 0, done.output
    assert f"on {server.url}: run {RUN[:8]}: 1 place was changed" in done.output
    assert files_with_secret(home) == []
    assert wait_until_gone(server.store) == []
    here, there = home / "runs" / RUN / "0.lines", server.store / "runs" / RUN / "0.lines"
    assert here.read_bytes() == there.read_bytes()
