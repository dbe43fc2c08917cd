"""The example `forgetting`: ten versions of a detector, of which some forgot a class, found by one replay."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import relive
from relive.store import Home
from relive.store.registry import Registry

EXAMPLE = Path(__file__).parents[2] / "examples" / "forgetting"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after the example: ten runs, and the replayed columns."""
    spec = importlib.util.spec_from_file_location("story", EXAMPLE / "story.py")
    story = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(story)
    sys.path.remove(str(EXAMPLE))
    folder = tmp_path_factory.mktemp("forgetting")
    story.ask(folder, story.record(folder))
    story.go_back(folder)
    return folder


@pytest.mark.long
def test_the_filled_table_shows_which_versions_forgot_a_class(project: Path):
    frame = relive.dataframe("day", "f1_ped", home=project / ".relive").sort_values("day")

    known = [bool(value > 0.9) for value in frame["f1_ped"]]
    assert known == [True] * 4 + [False] * 4 + [True] * 2


@pytest.mark.long
def test_a_statement_in_a_function_is_carried_into_versions_with_other_names(project: Path):
    frame = relive.dataframe("day", "f1_alert", sources=True, home=project / ".relive")

    assert len(frame) == 60
    assert frame["f1_alert"].notna().all()
    assert set(frame["f1_alert_source"]) <= {"replay 1, proven", "replay 1, reproduced"}


@pytest.mark.long
def test_the_run_to_go_back_to_is_found_by_one_query_and_promoted(project: Path):
    home = Home(project / ".relive")
    run_of_day = relive.dataframe("day", home=home.path).set_index("day")["run"]
    promoted = Registry(home).find("detector@production")

    assert promoted.run == run_of_day[3]
    assert np.load(relive.load("detector@production", home=home.path)).shape == (4, 3)
