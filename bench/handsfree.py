"""What hands-free recording costs a real training that never heard of relive, side by side with `python train.py`.

Both run at the same time, each on a core of its own and the next time on the other's, so that a machine whose speed
changes from one minute to the next changes it for both. What relive does in the background has to share the core of the
script it records. The time is that of the script itself, from its first line to its last.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.measuring import clean_environment, project, report

SCRIPT = """
import time
BEGUN, USED = time.perf_counter(), time.process_time()
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )
        layers = [nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10)]
        self.head = nn.Sequential(*layers)

    def forward(self, x):
        return self.head(self.features(x))


def train_one_epoch(net, loader, optimizer):
    net.train()
    total = 0.0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 10 == 0:
            print(f"step {step} loss: {loss.item():.4f}")
    return total / len(loader)


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    return sum((net(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def main():
    data = torch.utils.data.TensorDataset(torch.randn(1280, 1, 28, 28), torch.randint(0, 10, (1280,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for epoch in range(EPOCHS):
        loss = train_one_epoch(net, loader, optimizer)
        accuracy = evaluate(net, loader)
        scheduler.step()
        print(f"epoch {epoch} train_loss: {loss:.4f} accuracy: {accuracy:.3f}")


main()
print("TOOK", time.perf_counter() - BEGUN, time.process_time() - USED)
"""
PAIRS = 8
AIM_S = 15.0
GOALS = {"instrumentation": "<= 0.01", "recording": "<= 0.0667"}
OURS = ["-m", "relive", "run", "train.py"]
VARIANTS = {"plain": {}, "instrumentation": {"RELIVE_OVERHEAD": "0"}, "recording": {}}  # environment


def main() -> None:
    """Take the ratio of each pair, and the median of the ratios; two plain ones tell how far it can be trusted."""
    pairs, aim_s = int(os.environ.get("RELIVE_BENCH_PAIRS", PAIRS)), float(os.environ.get("RELIVE_BENCH_S", AIM_S))
    with project(SCRIPT.replace("EPOCHS", "2"), git=True) as folder:
        epochs = max(3, round(2 * aim_s / _ended(_begun(folder, "plain", None))["took_s"]))
    text = SCRIPT.replace("EPOCHS", str(epochs))
    with project(text, git=True) as mine, project(text, git=True) as theirs:
        rounds = {name: [_pair(mine, theirs, name, at) for at in range(pairs)] for name in VARIANTS}
    found = {
        f"{name}{suffix}": statistics.median(one[clock] for one in ratios)
        for name, ratios in rounds.items()
        for suffix, clock in (("", "took_s"), ("_cpu", "cpu_s"))
        if name != "plain" or not suffix
    }
    scatter = {f"{name}_scatter": [*_ends([one["took_s"] for one in ratios])] for name, ratios in rounds.items()}
    report("handsfree", GOALS, epochs=epochs, pairs=pairs, **found, **scatter)


def _ends(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def _pair(mine: Path, theirs: Path, name: str, at: int) -> dict[str, float]:
    """How much more one takes than a plain one that runs at the same time."""
    cores = sorted(os.sched_getaffinity(0))
    first, second = (cores[0], cores[-1])[:: -1 if at % 2 else 1]
    plain, ours = _begun(theirs, "plain", first), _begun(mine, name, second)
    took, base = _ended(ours), _ended(plain)
    return {clock: took[clock] / base[clock] - 1 for clock in took}


def _begun(folder: Path, name: str, core: int | None) -> subprocess.Popen[str]:
    env = {**clean_environment(), "OMP_NUM_THREADS": "1", "RELIVE_SELF_CHECK": "never", **VARIANTS[name]}
    command = [sys.executable, *(["train.py"] if name == "plain" else OURS)]
    pinned = ["taskset", "-c", str(core)] if core is not None else []
    return subprocess.Popen([*pinned, *command], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def _ended(process: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = process.communicate()
    _, took, used = out.strip().rpartition("\n")[2].split()
    return {"took_s": float(took), "cpu_s": float(used)}


if __name__ == "__main__":
    main()
