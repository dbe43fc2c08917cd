"""Going through a loop from its start and skipping what is in it, against beginning at a checkpoint.

Two runs of one training differ in a single line: where the seed of an epoch comes from. From a list, every end of an
epoch can be resumed from. From an iterator, whose place no checkpoint can hold, a replay begins at the first epoch and
skips the steps of all those that it does not want.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.measuring import clean_environment, project, report, run_script

SCRIPT = """
import sys
import torch
import relive

epochs, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
seeds = SEEDS
with relive.checkpointing(model=net, optimizer=optimizer, every=1):
    for epoch in relive.loop("epoch", range(epochs)):
        order = torch.Generator().manual_seed(NEXT)
        x, y = torch.randn(64, 256, generator=order), torch.randint(0, 10, (64,), generator=order)
        for step in relive.loop("step", range(steps)):
            loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            # inner
        relive.log("loss", loss.item())
"""
KINDS = {"resume": ("list(range(epochs))", "seeds[epoch]"), "pseudoresume": ("iter(range(epochs))", "next(seeds)")}
EPOCHS, STEPS, REPEAT = 30, 500, 5
ASK = """
import sys, time
from pathlib import Path
from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
from relive.store import Home
where, workers, expected = sys.argv[1] or None, int(sys.argv[2]), sys.argv[3]
home = Home(Path(".relive").absolute())
with ReplaySession(home) as session:
    plan = plan_replay(session, Question(("norm",), where, workers=workers, again=True))
    begun = time.perf_counter()
    found = execute_plan(session, plan, watch=lambda tasks: None)
    took = time.perf_counter() - begun
    ways = {case.plan.resume for case in plan.cases}
assert found.is_good and found.added, found
assert ways == {expected}, ways
print(took)
"""


def main() -> None:
    """The same question to both runs in turn, so that a machine that changes its mind changes it for both."""
    with project(_script("resume")) as one, project(_script("pseudoresume")) as other:
        folders = {"resume": one, "pseudoresume": other}
        for kind, folder in folders.items():
            run_script(folder, str(EPOCHS), str(STEPS), OMP_NUM_THREADS="1")
            text = _script(kind).replace("# inner", 'relive.log("norm", net[0].weight.norm().item())')
            (folder / "train.py").write_text(text)
        for name, where, workers in (("tenth", f"epoch >= {EPOCHS - EPOCHS // 10}", 1), ("all", "", 2)):
            _measure(name, where, workers, folders)


def _script(kind: str) -> str:
    seeds, following = KINDS[kind]
    return SCRIPT.replace("SEEDS", seeds).replace("NEXT", following)


def _measure(name: str, where: str, workers: int, folders: dict[str, Path]) -> None:
    took: dict[str, list[float]] = {kind: [] for kind in folders}
    for iteration in range(REPEAT + 1):
        for kind, folder in folders.items():
            seconds = _ask(folder, where, workers, kind)
            if iteration:  # at first libraries are loaded, and then stay
                took[kind].append(seconds)
    resume_s, pseudoresume_s = (statistics.median(took[kind]) for kind in ("resume", "pseudoresume"))
    report(
        f"pseudoresume_{name}", {"more": "<= 0.05"}, epochs=EPOCHS, workers=workers, resume_s=resume_s,
        pseudoresume_s=pseudoresume_s, more=pseudoresume_s / resume_s - 1, **{f"{k}_all_s": t for k, t in took.items()},
    )  # fmt: skip


def _ask(folder: Path, where: str, workers: int, kind: str) -> float:
    env = {**clean_environment(), "OMP_NUM_THREADS": "1", "RELIVE_WARM_SECONDS": "120"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, where, str(workers), kind], cwd=folder, env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return float(done.stdout)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
