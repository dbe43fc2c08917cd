"""Laws of the default columns of a DataFrame: what was asked for, and which run and iteration it is of."""

from __future__ import annotations

from pathlib import Path

import pytest

import relive


@pytest.fixture
def recorded(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RELIVE_VERSIONS", "0")
    with relive.run():
        for _ in relive.loop("epoch", range(2)):
            relive.log("loss", 0.5)
    return home


def test_a_dataframe_has_the_names_and_where_they_were_logged(recorded: Path) -> None:
    assert list(relive.dataframe("loss", home=recorded).columns) == ["run", "tstamp", "epoch", "loss"]


def test_facts_of_a_run_are_columns_if_they_are_named(recorded: Path) -> None:
    frame = relive.dataframe("filename", "loss", home=recorded)

    assert list(frame.columns) == ["run", "tstamp", "filename", "epoch", "loss"]
    assert len(frame) == 2
    assert len(relive.dataframe("project", "version", home=recorded)) == 1


def test_without_names_a_dataframe_has_all_facts(recorded: Path) -> None:
    assert list(relive.dataframe(home=recorded).columns) == ["project", "run", "tstamp", "version", "filename"]


def test_a_condition_may_use_facts_that_are_no_columns(recorded: Path) -> None:
    assert len(relive.dataframe("loss", where="version = '' and epoch = 1", home=recorded)) == 1


def test_sql_has_all_facts(recorded: Path) -> None:
    assert relive.sql("select count(distinct project) n from frame('loss')", home=recorded)["n"].item() == 1
