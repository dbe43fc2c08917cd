"""`relive transplant` at the terminal: bytes in, bytes out, and many cases at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relive.cli import main

OLD = b"# -*- coding: latin-1 -*-\r\nname = '\xe9'\r\nx = f(name)\r\ng(x)\r\n"
NEW = b"name = 'e'\nx = f(name)\nlog('x', x)\ng(x)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old.py").write_bytes(OLD)
    (tmp_path / "new.py").write_bytes(NEW)
    return tmp_path


def run(folder: Path, *options: str, stdin: str | None = None) -> Result:
    files = [str(folder / "old.py"), str(folder / "new.py")] if stdin is None else []
    return CliRunner().invoke(main, ["transplant", *files, *options], input=stdin)


def test_the_patched_file_is_printed_in_its_own_encoding(folder: Path):
    done = run(folder, "--line", "3")

    assert done.exit_code == 0
    assert done.stdout_bytes == OLD.replace(b"g(x)", b"log('x', x)\r\ng(x)")
    assert (folder / "old.py").read_bytes() == OLD


def test_json_has_positions_and_confidence(folder: Path):
    told = json.loads(run(folder, "--line", "3", "--json").stdout)

    (landing,) = told["landings"]
    assert (landing["line"], landing["old_line"], landing["before"]) == (3, 4, 4)
    assert landing["confidence"] == "high"
    assert told["added"] == {"script.py": [4]}


def test_an_omitted_statement_is_reported_and_counts_as_failure(folder: Path):
    done = run(folder, "--line", "3", "--line", "99")

    assert done.exit_code == 1
    assert "line 99 of" in done.stderr
    assert "holds no statement in the new version" in done.stderr
    assert b"log('x', x)" in done.stdout_bytes


def test_characters_that_the_encoding_lacks_are_an_error(folder: Path):
    (folder / "new.py").write_text(NEW.decode().replace("log('x'", "log('☃'"), encoding="utf-8")
    done = run(folder, "--line", "3")

    assert done.exit_code == 1
    assert "use --json" in done.stderr
    assert done.stdout_bytes == b""


def test_a_batch_answers_each_case_in_order_including_invalid_ones(folder: Path):
    good = {"id": 7, "old": "x = 1\ny = 2\n", "new": "x = 1\nlog('x', x)\ny = 2\n", "lines": [2]}
    many = {"old": {"a.py": good["old"]}, "new": {"a.py": good["new"]}, "lines": [["a.py", 2]]}
    lines = [json.dumps(good), "no json", "", json.dumps({"id": 9}), "[]", json.dumps(many)]
    done = run(folder, "--batch", stdin="\n".join(lines))

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert (answers[0]["id"], answers[0]["patched"]) == (7, good["new"])
    assert ["error" in answer for answer in answers] == [False, True, True, True, False]
    assert answers[2]["id"] == 9
    assert answers[-1]["patched"] == {"a.py": good["new"]}


def test_without_a_line_the_usage_is_shown(folder: Path):
    done = run(folder)

    assert done.exit_code == 2
    assert "--line" in done.stderr
