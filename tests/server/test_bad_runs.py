"""One bad run never takes the others down: what does not fit the schema is refused, and what got in is set aside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from click.testing import CliRunner

from relive.cli import main
from relive.store import Home
from relive.store.journal import SLOTS_MAGIC, ParsedJournal, parse_run

from .conftest import Server
from .test_security import ask, line, send

GOOD, BAD = "0123456789ab", "ba0000000000"
TOO_LARGE = 1 << 70  # fits into JSON, and into nothing that the index can store


def header(run: str) -> bytes:
    return line("run", 1, run=run, wall_ns=1, clock_ns=1)


def end(seq: int = 3) -> bytes:
    return line("end", seq, outcome="finished")


def slot(loop: int, iteration: int, value: int, kind: int, name: int = 0) -> bytes:
    head = loop.to_bytes(4, "little") + iteration.to_bytes(4, "little")
    return head + value.to_bytes(8, "little") + bytes(4) + (kind << 24 | name).to_bytes(4, "little")


def plant_bad_run(home: Home) -> None:
    """A run that was taken in before: every line fits the schema, and an item has no place in a column."""
    folder = home.run_folder(BAD)
    folder.mkdir(parents=True)
    item = json.dumps({"v": 1, "seq": 4, "t": 1, "k": "item", "loop": 2, "i": 0, "item": TOO_LARGE}).encode() + b"\n"
    names = line("name", 2, id=1, name="epoch") + line("name", 3, id=2, name="loss")
    (folder / "0.lines").write_bytes(header(BAD) + names + item + end(7))
    slots = [slot(1, 0, 0, 5)] * 4 + [slot(2, 0, 1, 64, 1), slot(2, 0, 0, 1, 2), slot(1, 0, 0, 5)]
    (folder / "0.slots").write_bytes(SLOTS_MAGIC + b"".join(slots))


def listed_runs(server: Server) -> set[str]:
    status, answer, _ = ask(server, "GET", "/api/runs")
    assert status == 200, answer
    return {row["run"] for row in answer["runs"]}


def test_a_tag_without_a_name_is_refused_and_the_server_goes_on(serve: Callable[..., Server]):
    server = serve()
    status, answer, _ = send(server, SLOTS_MAGIC, header(BAD) + line("tag", value=1) + end(), run=BAD)

    assert status == 422
    assert "'tag'" in answer["error"]
    assert send(server, SLOTS_MAGIC, header(GOOD) + end(2), run=GOOD)[0] == 200
    assert listed_runs(server) == {GOOD}


def test_a_kind_of_a_later_release_is_accepted(serve: Callable[..., Server]):
    server = serve()

    assert send(server, SLOTS_MAGIC, header(GOOD) + line("wonder", 2, name=7) + end(), run=GOOD)[0] == 200
    assert listed_runs(server) == {GOOD}


def test_a_run_with_values_out_of_range_does_not_stop_the_index(serve: Callable[..., Server], tmp_path):
    home = Home(tmp_path / "team")
    home.create()
    plant_bad_run(home)
    server = serve(store=home.path)
    assert send(server, SLOTS_MAGIC, header(GOOD) + end(2), run=GOOD)[0] == 200

    deadline = time.monotonic() + 60
    while not any((home.path / "index").rglob("catalog.sqlite")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert GOOD in listed_runs(server)
    for path in ("/api/leaderboard?metric=loss", "/api/runs?limit=5", "/metrics"):
        assert ask(server, "GET", path)[0] < 500
    assert send(server, SLOTS_MAGIC, header("cccccccccccc") + end(2), run="cccccccccccc")[0] == 200
    assert {GOOD, "cccccccccccc"} <= listed_runs(server)


def test_runs_and_doctor_name_a_run_that_can_not_be_read(tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    home.create()
    plant_bad_run(home)
    folder = home.run_folder(GOOD)
    folder.mkdir()
    (folder / "0.lines").write_bytes(header(GOOD) + end(2))
    (folder / "0.slots").write_bytes(SLOTS_MAGIC + slot(1, 0, 0, 5) * 2)

    def fail_on_bad(home: Home, run: str) -> list[ParsedJournal]:
        if run == BAD:
            raise MemoryError("32 GiB")
        return parse_run(home, run)

    monkeypatch.setattr("relive.store.catalog.index.parse_run", fail_on_bad)
    monkeypatch.setattr("relive.store.gc.integrity.parse_run", fail_on_bad)
    listed = CliRunner().invoke(main, ["runs", "--home", str(home.path), "--json"])
    examined = CliRunner().invoke(main, ["doctor", "--home", str(home.path)])

    assert [json.loads(row)["run"] for row in listed.stdout.splitlines()] == [GOOD]
    assert f"run {BAD[:8]} can't be read" in listed.stderr
    assert "relive doctor" in listed.stderr
    assert "MemoryError: 32 GiB" in examined.output
    assert examined.exit_code == 1


def test_a_run_with_a_record_of_many_megabytes_is_set_aside_and_others_are_listed(serve):
    server = serve()
    first = header("a" * 12)
    tags = b"".join(line("tag", seq, name=f"tag {seq}", value="x" * 200_000) for seq in range(2, 92))
    assert send(server, SLOTS_MAGIC, first + tags, run="a" * 12)[0] == 200
    assert send(server, SLOTS_MAGIC, header("b" * 12), run="b" * 12)[0] == 200
    status, answer, _ = ask(server, "GET", "/api/runs")

    assert status == 200
    assert [row["run"] for row in answer["runs"]] == ["b" * 12]
    assert "16 MiB" in answer["set_aside"][0]["reason"]
