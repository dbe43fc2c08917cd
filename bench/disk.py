"""How many bytes a logged float takes: in the journal, with its loops, and in the index."""

from __future__ import annotations

from bench.measuring import project, report, run_script

SCRIPT = """
import random, time
import relive
for epoch in relive.loop("epoch", range(10)):
    for step in relive.loop("step", range(10_000)):
        relive.log("loss", random.random())
        relive.log("acc", random.random())
"""


def main() -> None:
    """A real run; everything in its folder counts."""
    from relive.store import Home
    from relive.store.catalog import Index

    with project(SCRIPT, git=True) as folder:
        run_script(folder)
        home = folder / ".relive"
        journal = sum(file.stat().st_size for file in (home / "runs").rglob("*") if file.is_file())
        index = Index(Home(home))
        index.rebuild()
        segments = sum(file.stat().st_size for file in (home / "index").rglob("*.parquet"))
    goals = {"journal_bytes_per_float": "<= 30", "index_bytes_per_float": "<= 12"}
    report("disk", goals, journal_bytes_per_float=journal / 200_000, index_bytes_per_float=segments / 200_000)


if __name__ == "__main__":
    main()
