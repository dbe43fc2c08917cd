"""A damaged journal of a home is replaced by the whole copy of the server."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relive.cli import main
from relive.store import Home
from relive.store.chunks import Chunks
from relive.store.journal import Journal, encode_value, line_schema, parse_run
from relive.store.sync import RunShipment, ServerClient

from .conftest import Server


@pytest.fixture
def sent(tmp_path: Path, serve: Callable[..., Server]) -> tuple[Home, str, Server]:
    """A home with a run that has ended, and a server that has it too."""
    server = serve()
    home = Home(tmp_path / "home")
    home.create()
    run = home.new_run()
    journal = Journal(home.run_folder(run) / "0")
    journal.line(
        line_schema.RunStarted,
        run=run,
        wall_ns=time.time_ns(),
        clock_ns=time.monotonic_ns(),
        pid=1 << 23,
        host=platform.node(),
    )
    for number in range(80):
        journal.append_float("loss", 1 / (1 + number), 1, 0)
    text = encode_value("a long text " * 10_000, Chunks(home.chunks).put)
    journal.line(line_schema.Tag, name="note", value="hello")
    journal.line(line_schema.Arg, name="long", value=text, default=None, origin="default")
    journal.line(line_schema.RunEnded, outcome="finished")
    journal.close()
    with contextlib.closing(ServerClient(server.url)) as remote:
        shipment = RunShipment(home, run, remote)
        while shipment.step(lambda *_: True):
            pass
    return home, run, server


def doctor(home: Home, *options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--home", str(home.path), *options])


def values(home: Home, run: str) -> list[float]:
    return [float(value) for journal in parse_run(home, run) for value in journal.value]


def damage(path: Path, *, at: int | None = None) -> bytes:
    """Cuts a file, or changes one byte of it; returns what it is now."""
    raw = path.read_bytes()
    broken = raw[: len(raw) // 2] if at is None else raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    path.write_bytes(broken)
    return broken


@pytest.mark.parametrize(("file", "at"), [("0.slots", None), ("0.slots", 100), ("0.lines", None), ("0.lines", 60)])
def test_a_damaged_journal_is_replaced_by_the_copy_of_the_server_and_kept_aside(sent, file: str, at: int | None):
    home, run, server = sent
    whole, path = values(home, run), home.run_folder(run) / file
    broken = damage(path, at=at)
    assert doctor(home).exit_code == 1
    done = doctor(home, "--from-server", server.url)

    assert done.exit_code == 0, done.output
    assert "replaced by the copy of" in done.output
    assert f"{file}.damaged-1" in done.output
    assert path.with_name(f"{file}.damaged-1").read_bytes() == broken
    assert values(home, run) == whole
    assert not [name for name in os.listdir(home.runs) if name.startswith(".")]


def test_a_missing_file_is_fetched(sent):
    home, run, server = sent
    whole = values(home, run)
    (home.run_folder(run) / "0.slots").unlink()

    assert doctor(home, "--from-server", server.url).exit_code == 0
    assert values(home, run) == whole


def test_a_copy_that_is_damaged_too_changes_nothing(sent):
    home, run, server = sent
    here = home.run_folder(run) / "0.slots"
    broken = damage(here)
    damage(server.store / "runs" / run / "0.slots", at=200)
    done = doctor(home, "--from-server", server.url)

    assert done.exit_code == 1
    assert "damaged as well" in done.output
    assert here.read_bytes() == broken
    assert sorted(os.listdir(here.parent)) == ["0.lines", "0.slots"]


def test_a_copy_that_lacks_what_is_here_changes_nothing(sent):
    home, run, server = sent
    there = server.store / "runs" / run
    rows = (there / "0.lines").read_bytes().splitlines(keepends=True)
    (there / "0.lines").write_bytes(b"".join(rows[:2]))  # as if it had been sent while it was running
    (there / "0.slots").write_bytes((there / "0.slots").read_bytes()[: 24 * 10])
    damage(home.run_folder(run) / "0.slots", at=24 * 60)
    done = doctor(home, "--from-server", server.url)

    assert done.exit_code == 1
    assert "lacks" in done.output


def test_a_run_that_the_server_does_not_have_is_reported(sent, serve, tmp_path):
    home, run, _ = sent
    damage(home.run_folder(run) / "0.slots")
    done = doctor(home, "--from-server", serve(store=tmp_path / "other").url)

    assert done.exit_code == 1
    assert "404" in done.output


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_missing_or_damaged_chunk_is_fetched(sent, is_missing: bool):
    home, _, server = sent
    chunks = Chunks(home.chunks)
    [name] = list(chunks.names())
    content = chunks.get(name)
    if is_missing:
        chunks.path(name).unlink()
    else:
        damage(chunks.path(name), at=20)
    done = doctor(home, "--deep", "--from-server", server.url)

    assert done.exit_code == 0, done.output
    assert chunks.get(name) == content
