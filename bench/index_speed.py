"""How fast journals become tables: indexing, one metric of 100 runs, a leaderboard, and FlorDB's dataframe."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.filling import fill_home
from bench.measuring import median_s, once_s, project, report, run_script

FLORDB_WRITE = """
import flordb
for epoch in flordb.loop("epoch", range(100)):
    for step in flordb.loop("step", range(500)):
        flordb.log("loss", 0.1 * step)
        flordb.log("acc", 0.2 * step)
"""
FLORDB_READ = """
import json, os, statistics, time
import flordb
times = []
for _ in range(7):
    begun = time.perf_counter()
    frame = flordb.dataframe("loss", "acc")
    times.append(time.perf_counter() - begun)
open(os.environ["BENCH_RESULT"], "w").write(json.dumps({"took_s": statistics.median(times), "rows": len(frame)}))
"""
RELIVE_WRITE = FLORDB_WRITE.replace("flordb", "relive")
RELIVE_READ = FLORDB_READ.replace("flordb", "relive")


def main() -> None:
    """All on one machine, one after the other."""
    import duckdb  # noqa: F401 - loading libraries is not what is measured
    import numpy  # noqa: F401
    import pandas  # noqa: F401

    with tempfile.TemporaryDirectory() as name:
        large = _large(Path(name) / "large")
        board_s = _leaderboard_s(Path(name) / "board")
    flordb_s, relive_s = _against_flordb()
    goals = {
        "records_per_s": ">= 800000", "frame_s": "< 0.5", "leaderboard_s": "< 0.2", "flordb_ratio": ">= 50",
        "index_bytes_per_float": "<= 12",
    }  # fmt: skip
    report(
        "index_speed", goals, **large, leaderboard_s=board_s, flordb_dataframe_s=flordb_s,
        relive_dataframe_s=relive_s, flordb_ratio=flordb_s / relive_s,
    )  # fmt: skip


def _large(path: Path) -> dict[str, float]:
    from relive.query import QueryEngine
    from relive.store import Home
    from relive.store.catalog import Index

    count = fill_home(path, runs=100, steps=10_000, names=["loss", "acc"])
    rates = []
    for _ in range(3):
        index = Index(Home(path))
        rates.append(count / once_s(index.rebuild))
        index.close()
    stored = sum(file.stat().st_size for file in (path / "index").rglob("*.parquet"))
    frame_s = median_s(lambda: QueryEngine(path).dataframe(["loss"], where=None, ranks="canonical"))
    return {"records_per_s": sorted(rates)[1], "index_bytes_per_float": stored / count, "frame_s": frame_s}


def _leaderboard_s(path: Path) -> float:
    """The last value of 5 names for each of 1,000 runs."""
    from relive.store import Home
    from relive.store.catalog import Index

    names = ["a", "b", "c", "d", "e"]
    fill_home(path, runs=1_000, steps=100, names=names)
    Index(Home(path)).runs()

    def board() -> None:
        index = Index(Home(path))
        found = index.summaries(index.runs(), names)
        assert len(found) == 1_000
        assert all(len(summaries) == 5 for summaries in found.values())
        index.close()

    return median_s(board)


def _against_flordb() -> tuple[float, float]:
    """The same records in both; the time of dataframe() once each has its cache."""
    taken = []
    for write, read in ((FLORDB_WRITE, FLORDB_READ), (RELIVE_WRITE, RELIVE_READ)):
        with project(write, git=True) as folder:
            run_script(folder)
            (folder / "train.py").write_text(read)
            time.sleep(0.1)
            result = run_script(folder)
            assert result["rows"] == 50_000, result
            taken.append(result["took_s"])
    return taken[0], taken[1]


if __name__ == "__main__":
    main()
