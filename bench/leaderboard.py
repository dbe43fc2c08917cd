"""How fast a sweep is ranked: 400 runs × 10,000 steps × 8 ranks on one board, and the skew of one of them."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measuring import median_s, once_s, report
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import ROOT, Journal

RUNS, STEPS, RANKS = 400, 10_000, 8


def main() -> None:
    """Fill a home through the real journal, index it once, then ask."""
    import duckdb  # noqa: F401 - loading libraries is not what is measured
    import numpy  # noqa: F401

    from relive.query.compare import LeaderboardTerms, build_leaderboard, rank_skew

    with tempfile.TemporaryDirectory() as name:
        home = Home(Path(name) / "home")
        filled_s = once_s(lambda: _fill(home))
        indexed_s = once_s(lambda: Index(home).runs())

        def ask(**terms: Any) -> None:
            index = Index(home)
            board = build_leaderboard(index, "val_acc", LeaderboardTerms.of(**terms))
            assert sum(len(group["runs"]) for group in board["groups"]) >= RUNS // 2
            index.close()

        boards = {
            "last_s": {}, "best_grouped_s": {"by": "best", "where": "wd = 0", "group": "lr", "columns": "seed"},
            "mean_s": {"by": "mean", "k": 100}, "all_ranks_s": {"ranks": "mean"},
        }  # fmt: skip
        took = {key: median_s(lambda terms=terms: ask(**terms)) for key, terms in boards.items()}  # type: ignore[misc]
        begun = time.process_time()
        ask()
        cpu_s = time.process_time() - begun  # what it takes of a core, whoever else is at work on the machine
        index = Index(home)
        skew_s = median_s(lambda: rank_skew(index, "last", "val_acc"), 3)
        index.close()
    report(
        "leaderboard", dict.fromkeys(boards, "< 0.3"), runs=RUNS, points=RUNS * STEPS * RANKS, **took, last_cpu_s=cpu_s,
        skew_s=skew_s, filled_s=filled_s, indexed_s=indexed_s,
    )  # fmt: skip


def _fill(home: Home) -> None:
    home.create()
    for number in range(RUNS):
        run = home.new_run()
        for rank in range(RANKS):
            _write(home, run, number, rank)


def _write(home: Home, run: str, number: int, rank: int) -> None:
    journal = Journal(home.run_folder(run) / str(rank))
    journal.line(
        "run", run=run, name="", project="bench", pid=1, start="gone", host="elsewhere", rank=rank, world_size=RANKS,
        wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(), argv=["train.py"], environment={"python": "3.11"},
        entry={"kind": "script", "script": "/bench/train.py", "root": "/bench"}, tags={"sweep": "s", "trial": number},
    )  # fmt: skip
    journal.line("packages", packages={f"package-{at}": "1.0" for at in range(100)})
    for name, value in (("lr", 0.001 * (number % 5 + 1)), ("wd", number % 2), ("seed", number // 10)):
        journal.line("arg", name=name, value=value, default=value, origin="kwargs")
    journal.line("data_version", id="0123456789abcdef")
    loop = journal.begin_loop("step", ROOT, 0)
    value = random.random()
    for step in range(STEPS):
        journal.append_float("val_acc", value + step, loop, step)
    journal.end_loop(loop, STEPS)
    journal.line("end", outcome="finished", error=None, wall_ns=time.time_ns())
    journal.close()


if __name__ == "__main__":
    main()
