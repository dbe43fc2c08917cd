"""A token that is limited to projects sees no other runs, however it asks for them."""

from __future__ import annotations

import time
from pathlib import Path

from relive.server.questions.answers import ProjectIndex
from relive.store import Home
from relive.store.journal import Journal, line_schema


def write_run(home: Home, project: str) -> None:
    journal = Journal(home.run_folder(run := home.new_run()) / "0")
    clocks = {"wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns()}
    journal.line(line_schema.RunStarted, run=run, project=project, **clocks)
    journal.line(line_schema.RunEnded, outcome="finished", error=None)
    journal.close()


def test_an_index_of_projects_shows_their_runs_only(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    for project in ("mine", "theirs", "mine", "theirs"):
        write_run(home, project)
    index = ProjectIndex(home)
    assert (len(index.runs()), index.newest(1)[0]) == (4, 4)

    index.projects = frozenset({"mine"})

    assert [one.record.project for one in index.runs()] == ["mine", "mine"]
    total, newest = index.newest(1)
    assert (total, [one.record.project for one in newest]) == (2, ["mine"])
    assert len(index.newest(0)[1]) == 2
