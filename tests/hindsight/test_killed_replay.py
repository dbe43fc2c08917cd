"""A replay that is killed is taken up where it was: what it had computed is kept, and only the rest is run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import relive
from relive.cli.commands.replay_command import _report
from relive.hindsight import Answer, RunAnswer
from tests.conftest import Script

# A file for each time that an iteration is run, made anew: that is what a replay may do outside of its folder.
TRAIN = """
import os, time
import numpy as np
import relive

weights = np.zeros(50)
with relive.checkpointing(weights=weights, every=1):
    for epoch in relive.loop("epoch", range(10)):
        weights += epoch
        if os.environ.get("PACE"):
            open(f"{os.environ['PACE']}/{epoch}-{time.time_ns()}", "x").close()
        time.sleep(0.4)
        relive.log("last", weights[-1])
"""
ASKING = TRAIN + '        relive.log("mean", float(weights.mean()))\n'


def recorded_with_pace(script: Script, folder: Path) -> Path:
    """Records a run, adds a statement, and returns the folder in which replays tell which iterations they run."""
    pace = folder / "pace"
    pace.mkdir()
    script(TRAIN, env={"PACE": str(pace)})  # a replay has the variables that were recorded
    for path in pace.iterdir():
        path.unlink()
    script.write(ASKING)
    return pace


def runs_of(folder: Path) -> dict[int, int]:
    """How often each iteration was run."""
    counts: dict[int, int] = {}
    for path in folder.iterdir():
        epoch = int(path.name.partition("-")[0])
        counts[epoch] = counts.get(epoch, 0) + 1
    return counts


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_killed_replay_is_taken_up_where_it_was(script: Script, tmp_path: Path, workers: int) -> None:
    pace = recorded_with_pace(script, tmp_path)
    env = {"PACE": str(pace)}
    command = ("replay", "mean", "--yes", "--workers", str(workers))

    first = script.start_relive(*command, env=env)
    deadline = time.monotonic() + 60
    while len(list(pace.iterdir())) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(1.0)
    begun = runs_of(pace)
    second = script.relive(*command, env=env, check=False)

    again = [epoch for epoch, count in runs_of(pace).items() if count > begun.get(epoch, 0) and epoch in begun]
    assert len(begun) >= 4, second.stderr
    assert len(again) <= workers, second.stdout + second.stderr  # those that were being run when the replay was killed
    assert set(runs_of(pace)) == set(range(10))
    assert "taken up from a replay that was killed" in second.stderr
    frame = relive.dataframe("mean", home=script.home).sort_values("epoch")
    assert frame["mean"].tolist() == [sum(range(epoch + 1)) for epoch in range(10)]
    assert not list((script.home / "replays").iterdir())


def test_the_workers_of_a_killed_replay_end_with_it(script: Script, tmp_path: Path) -> None:
    pace = recorded_with_pace(script, tmp_path)

    first = script.start_relive("replay", "mean", "--yes", "--workers", "1", env={"PACE": str(pace)})
    deadline = time.monotonic() + 60
    while len(list(pace.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    time.sleep(1.0)
    then = len(list(pace.iterdir()))
    time.sleep(1.5)

    assert len(list(pace.iterdir())) == then < 10


def test_a_summary_counts_only_runs_that_gave_values(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer([RunAnswer("7c1f0b5e9a21", added=3), RunAnswer("1f2e77ab0c44")])

    _report(answer, ["mean"])

    assert "1 run, 3 values added" in capsys.readouterr().out
