"""The doctor names what is damaged, and queries tell of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import relive
from relive.cli import main
from relive.store import Home
from relive.store.catalog import Index
from relive.store.gc import check_home


@pytest.fixture
def run(script) -> tuple[Path, Path]:
    """The home and the folder of a finished run with 80 values."""
    done = script("""
        import relive
        for epoch in relive.loop("epoch", range(4)):
            for step in relive.loop("step", range(20)):
                relive.log("loss", 1.0 / (1 + step))
    """)
    assert done.returncode == 0, done.stderr
    home = done.home
    (folder,) = [home / "runs" / run for run in Home(home).run_ids()]
    return home, folder


def test_a_cut_file_of_a_finished_run_is_reported_and_what_is_left_is_right(run, capsys) -> None:
    home, folder = run
    os.truncate(folder / "0.slots", 1200)

    findings = [finding.text for finding in check_home(Home(home)) if finding.damage]
    table = relive.dataframe("loss", home=home)

    assert any("0.slots: slots 50–" in text for text in findings)
    assert any("values that are still there: " in text for text in findings)
    assert 0 < len(table) < 80
    assert table["loss"].tolist() == [1.0 / (1 + step) for step in table["step"]]
    assert "is incomplete: 0.slots: slots 50–" in capsys.readouterr().err


def test_a_run_whose_lines_are_gone_is_reported(run, capsys) -> None:
    home, folder = run
    (folder / "0.lines").write_bytes(b"")

    assert Index(Home(home)).runs() == []
    assert "0.lines is missing or empty" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["runs", "show last"])
def test_incomplete_runs_are_marked(run, command: str) -> None:
    home, folder = run
    os.truncate(folder / "0.slots", 1200)

    told = CliRunner().invoke(main, [*command.split(), "--home", str(home)]).output

    assert "incomplete" in told


def test_the_doctor_has_no_false_alarm(run) -> None:
    home, _ = run

    assert not [finding for finding in check_home(Home(home)) if finding.damage]
