"""Homes full of runs, written through the real journal, as fast as that goes."""

from __future__ import annotations

import random
import time
from pathlib import Path

from relive.store import Home
from relive.store.journal import ROOT, Journal, line_schema


def fill_home(path: Path, *, runs: int, steps: int, names: list[str]) -> int:
    """Write finished runs with a step loop; gives how many values were logged."""
    home = Home(path)
    home.create()
    for number in range(runs):
        run = home.new_run()
        journal = Journal(home.run_folder(run) / "0")
        journal.line(
            line_schema.RunStarted, run=run, name="", project="bench", pid=1, start="gone", host="elsewhere",
            wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(),
            entry={"kind": "script", "script": "/bench/train.py", "root": "/bench"},
            argv=["train.py"], environment={"python": "3.11"},
        )  # fmt: skip
        journal.line(line_schema.Arg, name="lr", value=0.001 * (number + 1), default=0.001, origin="kwargs")
        _log(journal, steps, names)
        journal.line(line_schema.RunEnded, outcome="finished", error=None, wall_ns=time.time_ns())
        journal.close()
    return runs * steps * len(names)


def _log(journal: Journal, steps: int, names: list[str]) -> None:
    loop = journal.begin_loop("step", ROOT, 0)
    for step in range(steps):
        for name in names:
            journal.append_float(name, random.random(), loop, step)
    journal.end_loop(loop, steps)
