"""Replay against running the script again: by depth, by length of the run, and against what the plan predicted."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.flor_replay import flor_replays
from bench.measuring import clean_environment, once_s, project, report, run_script

# Three trainings; where a statement can be added, a line says so.
SCRIPT = """
import sys
import torch
import relive

kind, epochs, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attend = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.mix = torch.nn.Sequential(torch.nn.Linear(width, 128), torch.nn.GELU(), torch.nn.Linear(128, width))
    def forward(self, x):
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return x + self.mix(x)

def make():
    if kind == "cnn":
        layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(),
            torch.nn.Dropout(0.2), torch.nn.Linear(512, 10))
        return layers, torch.randn(32, 3, 24, 24)
    if kind == "transformer":
        layers = torch.nn.Sequential(Block(64), Block(64), torch.nn.Flatten(), torch.nn.Linear(64 * 16, 10))
        return layers, torch.randn(16, 16, 64)
    layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    return layers, torch.randn(64, 256)

net, x = make()
y = torch.randint(0, 10, (len(x),))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
with relive.checkpointing(model=net, optimizer=optimizer):
    for epoch in relive.loop("epoch", range(epochs)):
        for step in relive.loop("step", range(steps)):
            loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            # inner
        relive.log("loss", loss.item())
        # outer
relive.log("final", loss.item())
# suffix
"""
NORM = 'relive.log("norm", sum(p.norm().item() for p in net.parameters()))'
# Ask, and tell what was predicted and what it took.
ASK = """
import sys, time
from pathlib import Path
from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
from relive.store import Home
name, workers, clause, again = sys.argv[1:]
home = Home(Path(".relive").absolute())
with ReplaySession(home) as session:
    plan = plan_replay(session, Question((name,), clause or None, workers=int(workers), again=bool(again)))
    cost_s = plan.cost_s
    begun = time.perf_counter()
    found = execute_plan(session, plan, watch=lambda tasks: None)
    took_s = time.perf_counter() - begun
assert found.is_good and found.added, found
print(cost_s, took_s)
"""
GOALS = {
    "suffix_ratio": ">= 20", "outer_ratio": ">= 10", "inner_tenth_ratio": ">= 6", "inner_all_ratio": ">= 1.7",
    "error_median": "<= 0.05", "error_worst": "<= 0.15",
}  # fmt: skip
BESIDE_FLOR = ("mlp", 50)  # the training that FlorDB replays, too
STEPS = {"cnn": 100, "transformer": 100, "mlp": 300}
ERRORS: list[float] = []
DIFFER: list[float] = []  # two equal replays, one after the other: no prediction can be better than that
REPEATED_S = 12.0  # replays that take less are done twice


def main() -> None:
    """Each training at several lengths; the lengths show how the ratios grow."""
    for kind, lengths in (("mlp", (10, 50, 200)), ("cnn", (40,)), ("transformer", (40,))):
        for epochs in lengths:
            _measure(kind, epochs, STEPS[kind])
    report(
        "replay_prediction", {key: GOALS[key] for key in ("error_median", "error_worst")}, plans=len(ERRORS),
        error_median=statistics.median(ERRORS), error_worst=max(ERRORS), errors=ERRORS,
        equal_replays_differ_median=statistics.median(DIFFER), equal_replays_differ_worst=max(DIFFER),
    )  # fmt: skip


def _measure(kind: str, epochs: int, steps: int) -> None:
    with project(SCRIPT) as folder:
        args = (kind, str(epochs), str(steps))
        again_s = once_s(lambda: run_script(folder, *args, OMP_NUM_THREADS="1", RELIVE_OFF="1"))
        recorded_s = once_s(lambda: run_script(folder, *args, OMP_NUM_THREADS="1"))
        source = (folder / "train.py").read_text()
        tenth = f"epoch >= {epochs - max(1, epochs // 10)}"
        took = {
            "first": _replay(
                folder, source, "suffix", "", 1, "epoch >= 0", is_first=True
            ),  # libraries are loaded, and then stay
            "suffix": _replay(folder, source, "suffix", "", 1),
            "outer": _replay(folder, source, "outer", "        ", 1),
            "inner_tenth": _replay(folder, source, "inner", "            ", 1, tenth),
            "inner_all": _replay(folder, source, "inner", "            ", 2),
        }
    ratios = {f"{name}_ratio": again_s / seconds for name, seconds in took.items()}
    if (kind, epochs) == BESIDE_FLOR:
        statements = dict.fromkeys(("suffix", "outer", "inner"), NORM)
        flor = flor_replays(SCRIPT, args, statements, range(epochs - max(1, epochs // 10), epochs))
        beside = {"suffix": "suffix", "outer": "outer", "inner_tenth": "inner"}
        ratios |= {f"{name}_flordb_ratio": flor[where] / took[name] for name, where in beside.items()}
        took |= {f"flordb_{where}": seconds for where, seconds in flor.items()}
    goals = {key: GOALS[key] for key in ratios if key in GOALS}
    report(f"replay_{kind}_{epochs}", goals, again_s=again_s, recorded_s=recorded_s, **ratios,
           **{f"{name}_s": seconds for name, seconds in took.items()})  # fmt: skip


def _replay(
    folder: Path, source: str, where: str, indent: str, workers: int, clause: str | None = None, *,
    is_first: bool = False,
) -> float:  # fmt: skip
    """Add a statement, replay it, take it out again; gives the seconds, and notes how far off the prediction was."""
    name = f"norm_{where}_{workers}_{len(clause or '')}"
    text = source.replace(f"{indent}# {where}\n", f"{indent}{NORM.replace('norm', name, 1)}\n")
    (folder / "train.py").write_text(text)
    # A variable that libraries might read when they are loaded: so nothing is there for the first question of a folder.
    env = {**clean_environment(), "OMP_NUM_THREADS": "1", "TORCH_BENCH": folder.name, "RELIVE_WARM_SECONDS": "120"}
    lines: list[str] = []

    def ask() -> None:
        command = [sys.executable, "-c", ASK, name, str(workers), clause or "", "again" if lines else ""]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        lines.append(done.stdout)

    seconds = once_s(ask)
    predicted, took = map(float, lines[0].split())
    ERRORS.append(abs(predicted - took) / took)
    if took < REPEATED_S and not is_first:
        ask()
        DIFFER.append(abs(float(lines[1].split()[1]) - took) / took)
    (folder / "train.py").write_text(source)
    return seconds


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
