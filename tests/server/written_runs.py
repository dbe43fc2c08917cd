"""Runs written through the real journal, within a millisecond each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from relive.store import Home
from relive.store.journal import ROOT, Journal, line_schema


def write_runs(
    store: Path,
    count: int = 1,
    *,
    steps: int = 1,
    args: dict[str, Any] | None = None,
    packages: dict[str, str] | None = None,
    **tags: Any,
) -> None:
    """Writes finished runs with a loss, an arg `number`, and some more args and tags."""
    home = Home(store)
    home.create()
    for number in range(count):
        run = home.new_run()
        journal = Journal(home.run_folder(run) / "0")
        journal.line(
            line_schema.RunStarted, run=run, name="", project="p", pid=1, start="gone", host="elsewhere",
            wall_ns=10**18 + number, clock_ns=0, entry={"kind": "script", "script": "/p/train.py", "root": "/p"},
            argv=["train.py"], environment={"python": "3.11"},
        )  # fmt: skip
        if packages:
            journal.line(line_schema.PackagesInstalled, packages=packages)
        for name, value in {"number": number, **(args or {})}.items():
            journal.line(line_schema.Arg, name=name, value=value, default=None, origin="kwargs")
        for name, value in tags.items():
            journal.line(line_schema.Tag, name=name, value=value)
        loop = journal.begin_loop("step", ROOT, 0)
        for step in range(steps):
            journal.append_float("loss", math.sin(step / 100 + number), loop, step)
        journal.end_loop(loop, steps)
        journal.line(line_schema.RunEnded, outcome="finished", error=None, wall_ns=10**18 + number + 10**9)
        journal.close()
