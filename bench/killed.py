"""SIGKILL at 200 random moments of a recording process: values lost whose call had returned, unreadable stores."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import tempfile
import time
from pathlib import Path

from bench.measuring import report

KILLS = 200


def main() -> None:
    """Each run is recorded by a forked process of its own, through the public verbs."""
    import numpy  # noqa: F401 - before the forks, which then start quickly

    import relive

    lost = unreadable = values = 0
    chance = random.Random(11)
    with tempfile.TemporaryDirectory() as name:
        os.environ.update(RELIVE_HOME=name, RELIVE_VERSIONS="0", RELIVE_INPUTS="0")
        for _ in range(KILLS):
            returned = _one(chance.random() * 0.04)
            values += returned
        counts = relive.sql("select run, count(*) n, max(value) last from logs group by run")
        acknowledged = _read_acknowledged(Path(name))
        found = dict(zip(counts["run"], counts["n"], strict=True))
        for run, expected in acknowledged.items():
            unreadable += run not in found and expected > 0
            lost += max(0, expected - int(found.get(run, 0)))
    goals = {"lost": "0", "unreadable": "0"}
    report("killed", goals, kills=KILLS, values_returned=values, lost=lost, unreadable=unreadable)


def _one(after_s: float) -> int:
    shared = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        _record(shared)
    while not any(shared[:8]):
        time.sleep(0.0005)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (returned,) = struct.unpack("<Q", shared[:8])
    home = Path(os.environ["RELIVE_HOME"])
    newest = max((home / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    (newest / "acknowledged").write_text(str(returned))
    return int(returned)


def _record(shared: mmap.mmap) -> None:
    import relive

    done = 0
    while True:
        for _step in relive.loop("step", range(100)):
            relive.log("loss", float(done))
            done += 1
            shared[:8] = done.to_bytes(8, "little")


def _read_acknowledged(home: Path) -> dict[str, int]:
    return {path.parent.name: int(path.read_text()) for path in (home / "runs").glob("*/acknowledged")}


if __name__ == "__main__":
    main()
