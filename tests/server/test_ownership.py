"""A run belongs to whoever began it, and what is done carries a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from relive.cli import main
from relive.server import Tokens
from relive.server.token_use import last_use
from relive.store import Home, read_sealed
from relive.store.journal import SLOTS_MAGIC
from relive.store.sync import read_audit

from .conftest import Server
from .test_bad_runs import end
from .test_security import RUN, ask, line, send


def header(run: str = RUN, project: str = "net") -> bytes:
    return line("run", 1, run=run, wall_ns=1, clock_ns=1, project=project)


def write_files(server: Server, run: str = RUN) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Home(server.store).run_folder(run).glob("0.*")}


@pytest.fixture
def team(tmp_path: Path, serve: Callable[..., Server]) -> tuple[Server, dict[str, str]]:
    store = tmp_path / "team"
    words = {name: Tokens(store).create(name, ["write", "read", "promote"])[0] for name in ("ada", "eve")}
    words["root"] = Tokens(store).create("root", ["admin"])[0]
    for name in ("net-1", "net-2"):
        words[name] = Tokens(store).create(name, ["write", "read"], projects=["net"])[0]
    words["other"] = Tokens(store).create("other", ["write", "read"], projects=["other"])[0]
    return serve("--host", "127.0.0.1", store=store), words


def test_only_the_token_that_began_a_run_appends_to_it(team):
    server, words = team
    first, more = header(), line("tag", name="a", value=1)
    assert send(server, SLOTS_MAGIC, first, token=words["ada"])[0] == 200

    at = (len(SLOTS_MAGIC), len(first))
    for other in ("eve", "net-1", "other"):
        status, answer, _ = send(server, b"", line("tag", name="a", value=2), at=at, token=words[other])
        assert status == 403
        assert "belongs to" in answer["error"] or "limited" in answer["error"]
    assert write_files(server)["0.lines"] == first
    assert send(server, b"", more, at=at, token=words["ada"])[0] == 200
    assert send(server, b"", end(3), at=(at[0], at[1] + len(more)), token=words["root"])[0] == 200
    assert {(one["event"], one["name"]) for one in read_audit(server.store)} >= {("not-owner", "eve")}


def test_a_run_still_belongs_to_its_token_after_a_restart(team):
    server, words = team
    assert send(server, SLOTS_MAGIC, header(), token=words["ada"])[0] == 200
    server.kill()
    server.start()

    at = (len(SLOTS_MAGIC), len(header()))
    assert send(server, b"", end(2), at=at, token=words["eve"])[0] == 403
    assert send(server, b"", end(2), at=at, token=words["ada"])[0] == 200


def test_other_bytes_in_the_place_of_stored_ones_are_refused_with_the_place(team):
    server, words = team
    assert send(server, SLOTS_MAGIC, header(), token=words["ada"])[0] == 200
    changed = header(project="mine")
    status, answer, _ = send(server, SLOTS_MAGIC, changed, token=words["ada"])

    assert status == 409
    assert answer["differs"] == {"file": "0.lines", "at": header().index(b"net")}
    assert write_files(server)["0.lines"] == header()
    told = CliRunner().invoke(main, ["token", "audit", "--store", str(server.store)])
    assert "conflict" in [json.loads(row)["event"] for row in told.stdout.splitlines()]


def test_tokens_of_a_project_share_its_runs_and_see_no_others(team):
    server, words = team
    assert send(server, SLOTS_MAGIC, header(project="net"), token=words["net-1"])[0] == 200
    assert send(server, SLOTS_MAGIC, header("a" * 12, "private"), run="a" * 12, token=words["ada"])[0] == 200

    at = (len(SLOTS_MAGIC), len(header()))
    assert send(server, b"", end(2), at=at, token=words["net-2"])[0] == 200
    assert send(server, SLOTS_MAGIC, header("b" * 12, "other"), run="b" * 12, token=words["net-1"])[0] == 403
    listed = {name: ask(server, "GET", "/api/runs", token=words[name])[1]["runs"] for name in ("net-1", "other", "ada")}
    assert {name: {run["run"] for run in runs} for name, runs in listed.items()} == {
        "net-1": {RUN}, "other": set(), "ada": {RUN, "a" * 12},
    }  # fmt: skip
    for path in ("", "/files", "/files/0.lines?at=0", "/checkpoints", "/skew?name=x"):
        assert ask(server, "GET", f"/api/runs/{'a' * 12}{path}", token=words["net-1"])[0] == 404


def test_a_run_from_before_is_adopted_by_the_first_token_that_appends(team):
    server, words = team
    folder = Home(server.store).run_folder(RUN)
    folder.mkdir(parents=True)
    (folder / "0.lines").write_bytes(header())
    (folder / "0.slots").write_bytes(SLOTS_MAGIC)

    at = (len(SLOTS_MAGIC), len(header()))
    assert send(server, at=at, token=words["eve"])[0] == 200  # a heartbeat claims nothing
    assert send(server, b"", end(2), at=at, token=words["ada"])[0] == 200
    assert send(server, b"", b"", at=(at[0], at[1] + len(end(2))), token=words["eve"])[0] == 403


def test_a_promotion_and_a_replay_carry_the_name_of_the_token(team):
    server, words = team
    replayed = line("replay", 1, wall_ns=1, clock_ns=1, names=["f1"], number=1)
    assert send(server, SLOTS_MAGIC, header() + end(2), token=words["ada"])[0] == 200
    assert send(server, SLOTS_MAGIC, replayed, journal="0-r1", token=words["root"])[0] == 200
    body = json.dumps({"run": RUN, "force": True}).encode()
    status, answer, _ = ask(server, "POST", "/api/registry/net", body, token=words["eve"])

    assert (status, answer["by"]) == (201, "eve")
    assert ask(server, "GET", f"/api/runs/{RUN}", token=words["ada"])[1]["replays"][0]["by"] == "root"


def test_an_expired_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tokens = Tokens(tmp_path)
    text, made = tokens.create("ada", ["read"], expires_in_s=30)

    assert tokens.find(text) == made
    monkeypatch.setattr("relive.server.tokens.time.time", lambda: made.expires_s + 1)
    assert tokens.find(text) is None


def test_a_rotated_token_has_a_new_secret_and_its_old_one_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tokens = Tokens(tmp_path)
    old, made = tokens.create("ada", ["read"])
    new, _ = tokens.rotate("ada", grace_s=60)

    assert {tokens.find(text).id for text in (old, new)} == {made.id}
    monkeypatch.setattr("relive.server.tokens.time.time", lambda: made.created_s + 3600)
    assert tokens.find(old) is None
    newest, _ = tokens.rotate("ada")
    assert tokens.find(new) is None
    assert tokens.find(newest).id == made.id


def test_tokens_of_earlier_releases_are_read(tmp_path: Path):
    text, _ = Tokens(tmp_path).create("ada", ["write"])
    kept = ("id", "name", "scopes", "hash", "created_s")
    stored = json.loads(read_sealed(tmp_path / "tokens.json"))
    (tmp_path / "tokens.json").write_text(json.dumps([{key: one[key] for key in kept} for one in stored]))

    found = Tokens(tmp_path).find(text)
    assert found is not None
    assert (found.projects, found.expires_s) == ((), None)


def test_the_list_of_tokens_shows_their_last_use_and_limits(team):
    server, words = team
    ask(server, "GET", "/api/runs", token=words["ada"])
    server.stop()
    used = last_use(server.store)
    run = CliRunner()
    made = run.invoke(
        main, ["token", "create", "ci", "--expires", "30d", "--project", "net", "--store", str(server.store)]
    )
    listed = run.invoke(main, ["token", "ls", "--store", str(server.store)]).stdout

    assert made.exit_code == 0
    assert len(used) == 1
    (ada,) = [row for row in listed.splitlines() if row.endswith("ada")]
    assert "never used" not in ada
    (ci,) = [row for row in listed.splitlines() if row.endswith("ci")]
    assert "until" in ci
    assert "net" in ci
