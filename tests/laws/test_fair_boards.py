"""Promise 7: runs that differ in data are never ranked side by side unasked, whatever they are and however one asks."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.query.compare import LeaderboardTerms, build_leaderboard
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import ROOT, Journal, process_start_stamp

data = st.sampled_from([None, "d1", "d2", "d3"])
runs = st.lists(st.tuples(data, st.floats(), st.sampled_from([0.1, 0.2]), st.booleans()), min_size=1, max_size=8)
asked = st.fixed_dictionaries(
    {
        "by": st.sampled_from(["last", "best", "min", "max", "mean"]),
        "order": st.sampled_from([None, "min", "max"]),
        "group": st.sampled_from([(), ("lr",)]),
        "where": st.sampled_from([None, "lr < 1", "data_version is not null"]),
        "guard": st.sampled_from([("data",), ("data", "code"), ("environment", "data")]),
        "ranks": st.sampled_from(["canonical", "mean"]),
    }
)


def write(home: Home, data: str | None, value: float, lr: float, is_live: bool) -> None:
    run = home.new_run()
    journal = Journal(home.run_folder(run) / "0")
    me = {"pid": os.getpid(), "start": process_start_stamp(os.getpid()), "host": os.uname().nodename}
    journal.line("run", run=run, rank=0, wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(), **me)
    journal.line("arg", name="lr", value=lr, default=lr, origin="default")
    if data is not None:
        journal.line("data_version", id=data)
    journal.append_float("acc", value, ROOT, 0)
    if not is_live:
        journal.line("end", outcome="finished", error=None)
        journal.close()


@pytest.mark.long
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(runs, asked)
def test_no_group_ever_holds_two_data_versions_unasked(rows: list[Any], terms: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.create()
        for row in rows:
            write(home, *row)
        index = Index(home)
        board = build_leaderboard(index, "acc", LeaderboardTerms.of(**terms))
        across = build_leaderboard(index, "acc", LeaderboardTerms.of(**{**terms, "across_data": True}))
        index.close()

    versions = [{run["data_version"] for run in group["runs"]} for group in board["groups"]]
    assert all(len(found) == 1 for found in versions)
    several = len(set().union(*versions)) > 1
    assert all(bool(group["reason"]) == several for group in board["groups"])
    listed = sorted(run["run"] for group in board["groups"] for run in group["runs"])
    assert listed == sorted(run["run"] for group in across["groups"] for run in group["runs"])
