"""One question to many versions of a project: planning it, replaying it, and what the versions take on disk."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.measuring import clean_environment, once_s, project, report, run_script
from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
from relive.store import Home

VERSIONS, REPLAYED, MODULES, FUNCTIONS = 200, 20, 10, 25
SCRIPT = """
import relive
from parts import part_0

state = {"w": 1.0}
with relive.checkpointing(state=state, every=1):
    for epoch in relive.loop("epoch", range(3)):
        for step in relive.loop("step", range(5)):
            state["w"] = part_0.work_0(state["w"])
        relive.log("w", state["w"])
relive.log("end", state["w"])
"""
FUNCTION = '''def work_{n}(value):
    """Part {n} of the work."""
    total = value * {factor}
    for item in range(3):
        total += item / {divisor}
    if total > 1000:
        total = total % 7
    return total

'''
GOALS = {"cold_s": "< 10", "cached_s": "< 1", "per_version_s": "<= 1.5", "git_mb_100": "< 5"}


def main() -> None:
    """Two hundred versions, each with a few functions changed."""
    with project(SCRIPT, git=True) as folder:
        lines = _record(folder)
        size_100 = sum(f.stat().st_size for f in (folder / ".git").rglob("*") if f.is_file()) / VERSIONS * 100
        _add(folder)
        home = Home(folder / ".relive")
        cold_s = once_s(lambda: _plan(home, ("probe",)))
        cached_s = once_s(lambda: _plan(home, ("probe",)))
        shutil.rmtree(home.path / "fits")
        own_s = once_s(lambda: run_script(folder))
        runs = tuple(sorted(home.run_ids())[:REPLAYED])
        with ReplaySession(home) as session:
            plan = plan_replay(session, Question(("probe",), runs=runs, workers=2))
            begun = time.perf_counter()
            found = execute_plan(session, plan, watch=lambda tasks: None)
            replay_s = time.perf_counter() - begun
    assert found.is_good, found
    assert found.added == REPLAYED, found
    report(
        "multiversion", GOALS, versions=VERSIONS, project_lines=lines, cold_s=cold_s, cached_s=cached_s,
        per_version_s=max(0.0, replay_s * 2 / REPLAYED - own_s), own_s=own_s, git_mb_100=size_100 / 1e6,
    )  # fmt: skip


def _plan(home: Home, names: tuple[str, ...]) -> None:
    with ReplaySession(home) as session:
        plan = plan_replay(session, Question(names))
        assert len(plan.cases) == VERSIONS, plan.refusals[:3]


def _record(folder: Path) -> int:
    chance = random.Random(0)
    (folder / "parts").mkdir()
    texts = {
        f"part_{m}.py": [FUNCTION.format(n=n, factor=1 + n / 100, divisor=n + 1) for n in range(FUNCTIONS)]
        for m in range(MODULES)
    }
    for _ in range(VERSIONS):
        for _ in range(3):
            name = chance.choice(list(texts))
            at = chance.randrange(FUNCTIONS)
            texts[name][at] = FUNCTION.format(n=at, factor=1 + chance.random() / 100, divisor=at + 1)
        for name, functions in texts.items():
            (folder / "parts" / name).write_text("\n".join(functions))
        subprocess.run([sys.executable, "train.py"], cwd=folder, env=clean_environment(), check=True)
    return sum(len((folder / "parts" / name).read_text().splitlines()) for name in texts)


def _add(folder: Path) -> None:
    path = folder / "train.py"
    path.write_text(path.read_text() + 'relive.log("probe", state["w"] * 2)\n')


if __name__ == "__main__":
    main()
