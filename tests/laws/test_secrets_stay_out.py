"""The law of secrets: whatever way a secret takes into a run, no file of the home holds it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import relive
from relive.errors import ReliveError
from relive.memo.argument_display import describe_argument
from relive.settings import load
from relive.store import Home
from relive.store.catalog import Index

WAYS = {
    "a nested arg": 'relive.arg("cfg", {"db": [{"password": SECRET}], "lr": 0.1})',
    "an arg with a connection string": 'relive.arg("db", f"postgresql://me:{SECRET}@host/db")',
    "a namespace": 'import argparse; relive.arg("cfg", argparse.Namespace(api_key=SECRET))',
    "a logged address": 'relive.log("source", f"https://me:{SECRET}@host/x")',
    "a large logged text": 'relive.log("source", f"https://me:{SECRET}@host/x" + " " * 10_000)',
    "a logged token": 'relive.log("answer", {"text": f"use ghp_{SECRET * 3}"})',
    "an item of a loop": 'list(relive.loop("url", [f"https://me:{SECRET}@host/x"]))',
    "data": 'relive.data("x", f"https://me:{SECRET}@host/x?token={SECRET}")',
    "the name of data": 'relive.data(f"https://me:{SECRET}@host/x", [1])',
    "the name of an artifact": 'relive.artifact(b"x", name=f"https://me:{SECRET}@host/x")',
    "the name of a run": 'with relive.run(f"https://me:{SECRET}@host/x"): relive.log("a", 1)',
    "a tag": 'with relive.run("a", tags={"db": {"token": SECRET}}): relive.log("a", 1)',
    "a pattern of the project": 'relive.log("a", f"proj-{SECRET}")',
    "an exception": 'relive.log("a", 1); raise OSError(f"can\'t reach postgresql://me:{SECRET}@host/db")',
    "an exception of a run": """
with relive.run("a"):
    relive.log("a", 1)
    raise OSError(f"no login with password={SECRET}")""",
    "a worker": """
import multiprocessing
def work(): relive.log("a", f"proj-{SECRET}")
relive.log("a", 1)
one = multiprocessing.get_context("fork").Process(target=work)
one.start(); one.join()""",
}
SECRET = "hunter2Xhunter2"


def holders(home: Path) -> list[str]:
    """The files of a home that hold the secret, without the versions of the code, compressed or not."""
    from relive.store.chunks import Chunks

    Index(Home(home)).refresh()
    found = [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    chunks = list((home / "chunks").glob("??/*"))
    contents = [path for path in chunks if SECRET.encode() in Chunks(home / "chunks").get(path.parent.name + path.name)]
    return [path.name for path in (*found, *contents)]


@pytest.mark.parametrize("way", WAYS)
def test_no_file_of_the_home_holds_a_secret(way: str, script) -> None:
    script.write('secret_patterns = ["proj-[A-Za-z0-9]+"]\n', "relive.toml")
    # The script reads it from the environment, so that the code does not hold it.
    start = f'import os, relive\nSECRET = os.environ["GIVEN"]\nrelive.log("begun", 1)\n{WAYS[way]}\n'
    done = script(start, env={"GIVEN": SECRET}, check=False)

    assert "relive:" not in done.stderr
    assert len(relive.dataframe("begun", home=script.home))
    assert holders(script.home) == []


def test_no_file_of_the_home_holds_a_secret_of_the_command_line(script) -> None:
    words = ["-p", SECRET, "--token", SECRET, f"--api-key={SECRET}", f"https://me:{SECRET}@host", "--max-tokens", "5"]
    script('import relive\nrelive.log("a", 1)\n', *words, env={"TORCH_INDEX": f"https://me:{SECRET}@host"})
    (entry,) = Index(Home(script.home)).runs()

    assert holders(script.home) == []
    assert entry.record.config["argv"][1:] == [
        "-p", "***", "--token", "***", "--api-key=***", "https://me:***@host", "--max-tokens", "5",
    ]  # fmt: skip
    assert entry.record.environment["variables"]["TORCH_INDEX"] == "https://me:***@host"


def test_a_replay_uses_the_default_for_the_part_of_an_arg_that_is_secret(script) -> None:
    source = """
        import relive
        cfg = relive.arg("cfg", {"password": "none", "lr": 0.1})
        for epoch in relive.loop("epoch", range(2)):
            relive.log("rate", cfg["lr"])
            ADDED
    """
    script(source.replace("ADDED", "pass"), "--kwargs", f"cfg={{'password': '{SECRET}', 'lr': 0.5}}")
    script.write(source.replace("ADDED", 'relive.log("seen", cfg["password"])'))
    answer = relive.replay("seen", home=script.home)
    frame = relive.dataframe("rate", "seen", home=script.home)

    assert answer.runs[0].notes == ["a part of the arg 'cfg' is secret and was not recorded; its default was used"]
    assert frame[["rate", "seen"]].values.tolist() == [[0.5, "none"]] * 2


def test_a_new_home_is_for_its_owner_only(tmp_path: Path) -> None:
    Home(tmp_path / "a" / "home").create()
    (tmp_path / "old").mkdir(mode=0o755)
    Home(tmp_path / "old").create()

    assert stat.S_IMODE((tmp_path / "a" / "home").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o755


def test_a_pattern_that_is_no_regular_expression_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "relive.toml").write_text('secret_patterns = ["a("]\n')

    with pytest.raises(ReliveError, match=r"relive.toml: 'a\(' is no regular expression"):
        load(tmp_path, {})
    with pytest.raises(ReliveError, match=r"RELIVE_SECRET_PATTERNS: 'b\(' is no regular expression"):
        load(tmp_path / "none", {"RELIVE_SECRET_PATTERNS": "x,b("})


def test_the_journal_of_a_replay_holds_no_secret_of_its_statement_and_the_command_line_is_noted(script) -> None:
    source = 'import relive\nfor epoch in relive.loop("epoch", range(2)):\n    relive.log("a", epoch)\n'
    script(source, "--token", SECRET)
    script.write(source + f'    relive.log("size", len("https://me:{SECRET}@host"))\n')
    answer = relive.replay("size", home=script.home)
    (journal,) = script.home.glob("runs/*/0-r1.lines")

    assert answer.runs[0].notes == ["secrets in the command line were not recorded; the script gets *** for them"]
    assert b"https://me:***@host" in journal.read_bytes()
    assert SECRET.encode() not in journal.read_bytes()


def test_remembered_calls_are_described_without_secrets() -> None:
    shown = describe_argument("cfg", {"db": f"postgresql://me:{SECRET}@host/db"})

    assert shown == "{'db': 'postgresql://me:***@host/db'}"
