"""`relive memo` as people type it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relive.cli import main
from relive.store import Home
from relive.store.chunks import Chunks, MemoTable

SCRIPT = """
    import relive, numpy
    @relive.memo(exceptions=(KeyError,))
    def features(path, *, size=128):
        if path == "missing":
            raise KeyError(path)
        return numpy.arange(size)
    @relive.memo
    def fetch(url, token=""):
        return {url: object}
    features("data.csv")
    features("other.csv", size=4)
    fetch("a", token="secret")
    try:
        features("missing")
    except KeyError:
        pass
    relive.log("done", True)
"""


class Terminal:
    """Runs commands in this process, which is faster than a process for each."""

    def relive(self, *args: str) -> Any:
        return CliRunner().invoke(main, args)


@pytest.fixture
def made(script: Any, home: Path) -> Terminal:
    script(SCRIPT)
    return Terminal()


def keys(terminal: Terminal, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in terminal.relive("memo", "ls", "--json", *args).stdout.splitlines()]


def test_ls_show_why_and_rm(made: Terminal):
    listed = keys(made)
    names = [row["function"] for row in listed]
    table = made.relive("memo", "ls").stdout
    shown = made.relive("memo", "show", listed[-1]["key"][:10], "--value").stdout

    assert names == ["train.features", "train.fetch", "train.features", "train.features"]
    assert listed[0]["kind"] == "exception"
    assert "secret" not in table + shown + json.dumps(listed)
    assert "token=<redacted>" in table
    assert "(exception)" in table
    assert "argument path      'data.csv'" in shown
    assert "without pickle" in shown
    assert "array([  0,   1," in shown
    why = made.relive("memo", "why", "features('data.csv', size=9)").stdout
    assert "new argument: size = 9 (stored: 128)" in why
    assert "1 call removed" in made.relive("memo", "rm", "--function", "fetch", "--yes").stdout
    assert "0 calls removed" in made.relive("memo", "rm", "--where", "age > 30d", "--yes").stdout
    assert "1 call removed" in made.relive("memo", "rm", listed[0]["key"][:12], "--yes").stdout
    assert len(keys(made, "--where", "kind = result")) == 2
    assert "0 pickled results" in made.relive("memo", "trust").stdout


MISTAKES = {
    ("show", "zz"): "relive memo ls",
    ("show", "0123456789abcdef"): "relive memo ls",
    ("rm",): "--where 'age >= 0s'",
    ("rm", "--where", "age > yesterday"): "write a number",
    ("why", "nothing()"): "recorded functions",
    ("ls", "--function", "nothing"): "recorded functions",
}


def test_mistakes_end_in_the_remedy(made: Terminal):
    for command, message in MISTAKES.items():
        done = made.relive("memo", *command)

        assert done.exit_code == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_an_empty_home_says_what_to_do(script: Any, home: Path):
    Home(home).create()
    done = Terminal().relive("memo", "ls")

    assert done.exit_code == 1
    assert "@relive.memo" in done.stderr


def test_the_doctor_reports_entries_that_cannot_be_read(made: Terminal, home: Path):
    row = next(row for row in MemoTable(home / "memo.sqlite").rows() if not row.chunks)
    MemoTable(home / "memo.sqlite").put(row._replace(chunks="0" * 64, function="train.lost").sealed(), None, "{}")
    found = made.relive("doctor").stdout

    assert "of train.lost: chunk 000000000000 is missing" in found
    assert "it is computed again" in found
    assert list(Chunks(home / "chunks").names()) == []
