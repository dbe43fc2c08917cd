"""Reading never makes a home: later runs in folders below would land in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import relive
from relive.cli import main
from relive.errors import ReliveError

QUESTIONS: dict[str, Callable[[], Any]] = {
    "sql": lambda: relive.sql("select 1"),
    "dataframe": lambda: relive.dataframe("loss"),
    "dataframe that fills": lambda: relive.dataframe("loss", fill=True),
    "replay": lambda: relive.replay("loss"),
    "restore": lambda: relive.restore("last"),
    "load": lambda: relive.load("model@production"),
    "leaderboard": lambda: relive.leaderboard("loss"),
    "diverge": lambda: relive.diverge("a", "b"),
}
COMMANDS = [
    "runs",
    "show last",
    "dataframe loss",
    "leaderboard loss",
    "replay loss",
    "doctor",
    "gc",
    "versions",
    "registry",
]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_in_an_empty_folder_names_the_home_and_makes_none(empty: Path, question: str) -> None:
    with pytest.raises(ReliveError, match=r"no runs in .*\.relive; record one with `python train.py`, or name another"):
        QUESTIONS[question]()

    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_an_empty_folder_names_the_home_and_makes_none(empty: Path, command: str) -> None:
    found = CliRunner().invoke(main, command.split())

    assert found.exit_code == 1
    assert "no runs in" in found.output
    assert list(empty.iterdir()) == []
