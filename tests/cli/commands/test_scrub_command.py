"""Laws of `relive scrub`: a text that slipped into a run is gone, and all else of the run is as it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import relive
from relive.cli import main
from relive.store import Home
from relive.store.gc import scrub_run

SECRET = b"hunter2"
TRAIN = """
    import relive
    relive.arg("note", "hunter2 and hunter2")
    relive.log("config", {"hunter2": 1, "x": ["say hunter2"]})
    for epoch in relive.loop("epoch", range(3)):
        relive.log("loss", 0.5)
"""


def cli(home: Path, *args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [*args, "--home", str(home)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def recorded(shared_script: Any) -> Path:
    shared_script(TRAIN)
    return Path(shared_script.home)


@pytest.fixture
def home(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / ".relive"))


def holders(home: Path) -> list[str]:
    files = [path for path in home.rglob("*") if path.is_file() and "versions.git" not in path.parts]
    return [path.name for path in files if SECRET in path.read_bytes()]


def test_a_text_is_removed_from_the_home_and_the_rest_stays(home: Path) -> None:
    before = relive.dataframe("loss", home=home)
    relive.dataframe("config", home=home)
    held = holders(home)
    done = cli(home, "scrub", "last", "hunter2")

    assert len(held) > 1  # the journal, and the index
    assert "6 places were changed (0.lines)" in done.output  # twice in the value of the arg, and in its default
    assert holders(home) == []
    assert relive.dataframe("loss", home=home).equals(before)
    assert relive.dataframe("note", home=home)["note"][0] == "*** and ***"
    assert relive.dataframe("config", home=home)["config"][0] == {"***": 1, "x": ["say ***"]}
    assert "all readable" in cli(home, "doctor", "--deep").output
    assert "0 places were changed" in cli(home, "scrub", "last", "hunter2").output


def test_a_dry_run_changes_nothing(home: Path) -> None:
    (journal,) = home.glob("runs/*/0.lines")
    before = journal.read_bytes()

    assert "6 places would be changed (0.lines)" in cli(home, "scrub", "last", "hunter2", "--dry-run").output
    assert journal.read_bytes() == before


def test_a_chunk_that_holds_the_text_is_named_and_not_changed(script: Any) -> None:
    script('import relive\nrelive.log("text", "a" * 5_000 + "hunter2")\n')
    done = cli(script.home, "scrub", "last", "hunter2")

    assert "0 places were changed" in done.output
    assert "holds the text and is not changed" in done.output
    assert "all readable" in cli(script.home, "doctor", "--deep").output


def test_a_run_that_is_live_is_refused(script: Any) -> None:
    waiting = 'print("go", flush=True)\ntime.sleep(60)\n'
    process = script.start(f'import time, relive\nrelive.arg("a", "hunter2")\n{waiting}')
    process.stdout.readline()
    done = cli(script.home, "scrub", "last", "hunter2", code=1)

    assert "is running; stop it first" in done.output
    assert holders(script.home)


def test_a_damaged_line_does_not_get_a_right_checksum(home: Path) -> None:
    (journal,) = home.glob("runs/*/0.lines")
    journal.write_bytes(journal.read_bytes().replace(b"say hunter2", b"soy hunter2"))
    done = cli(home, "scrub", "last", "hunter2")

    assert "damaged lines that hold the text (1)" in done.output
    assert b"soy hunter2" in journal.read_bytes()
    assert cli(home, "doctor", code=1)


@pytest.mark.parametrize(("pattern", "message"), [("(", "no regular expression"), ("x*", "matches the empty text")])
def test_a_pattern_that_can_not_be_used_is_refused(home: Path, pattern: str, message: str) -> None:
    assert message in cli(home, "scrub", "last", pattern, code=1).output


def test_what_readers_need_of_a_line_is_never_replaced(home: Path) -> None:
    cli(home, "scrub", "last", "finished|arg|file|log")

    assert "all readable" in cli(home, "doctor").output
    assert "finished" in cli(home, "show", "last").output


def test_lines_of_the_first_format_stay_without_checksums(tmp_path: Path) -> None:
    old = Path(__file__).parents[2] / "formats" / "1" / "home"
    home = Path(shutil.copytree(old, tmp_path / ".relive"))
    (journal, *_) = sorted(home.glob("runs/*/0.lines"))
    journal.write_bytes(journal.read_bytes().replace(b'"argv":[', b'"argv":["hunter2",'))
    done = cli(home, "scrub", journal.parent.name, "hunter2")

    assert "1 place was changed (0.lines)" in done.output
    assert b'"argv":["***",' in journal.read_bytes()
    assert b'"sum"' not in journal.read_bytes()
    assert not holders(home)


def test_a_scrub_that_is_killed_leaves_every_journal_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (journal,) = home.glob("runs/*/0.lines")
    before = journal.read_bytes()
    monkeypatch.setattr("relive.store.durable_files.publish", _stop)
    with pytest.raises(KeyboardInterrupt):
        scrub_run(Home(home), journal.parent.name, "hunter2")

    assert journal.read_bytes() == before
    assert sorted(path.name for path in journal.parent.iterdir() if "partial" in path.name) == []


def _stop(*_: object) -> None:
    raise KeyboardInterrupt
