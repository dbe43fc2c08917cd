"""What hands-free recording costs a real training that never heard of relive, side by side with `python train.py`.

Runs alternate: plain, instrumented without checkpoints, and recorded as usual. The time is that of the script itself,
from its first line to its last, so that the start of Python, which scatters most, is told apart as `start_up`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
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
PAIRS = 7
AIM_S = 15.0
GOALS = {"instrumentation": "<= 0.01", "recording": "<= 0.0667"}
NO_CHECKPOINTS = {"RELIVE_OVERHEAD": "0"}


def main() -> None:
    """Take the ratio of each round, and the median of the ratios."""
    pairs, aim_s = int(os.environ.get("RELIVE_BENCH_PAIRS", PAIRS)), float(os.environ.get("RELIVE_BENCH_S", AIM_S))
    with project(SCRIPT.replace("EPOCHS", "2"), git=True) as folder:
        epochs = max(3, round(2 * aim_s / _run(folder, ["train.py"])["took_s"]))
    with project(SCRIPT.replace("EPOCHS", str(epochs)), git=True) as folder:
        rounds = [_round(folder) for _ in range(pairs)]
    ratios = {
        f"{name}_{clock}": [one[name][clock] / one["plain"][clock] - 1 for one in rounds]
        for name in ("instrumentation", "recording") for clock in ("took_s", "cpu_s", "whole_s")
    }  # fmt: skip
    report(
        "handsfree", GOALS, plain_s=statistics.median(one["plain"]["took_s"] for one in rounds), epochs=epochs,
        instrumentation=statistics.median(ratios["instrumentation_took_s"]),
        recording=statistics.median(ratios["recording_took_s"]),
        instrumentation_cpu=statistics.median(ratios["instrumentation_cpu_s"]),
        recording_cpu=statistics.median(ratios["recording_cpu_s"]),
        instrumentation_whole_process=statistics.median(ratios["instrumentation_whole_s"]),
        recording_whole_process=statistics.median(ratios["recording_whole_s"]),
        scatter=[min(ratios["recording_took_s"]), max(ratios["recording_took_s"])], pairs=pairs,
    )  # fmt: skip


def _round(folder: Path) -> dict[str, dict[str, float]]:
    ours = ["-m", "relive", "run", "train.py"]
    return {
        "plain": _run(folder, ["train.py"]),
        "instrumentation": _run(folder, ours, **NO_CHECKPOINTS),
        "recording": _run(folder, ours),
    }


def _run(folder: Path, command: list[str], **environment: str) -> dict[str, float]:
    env = {**clean_environment(), "OMP_NUM_THREADS": "1", "RELIVE_SELF_CHECK": "never", **environment}
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=True)
    whole_s = time.perf_counter() - begun
    _, took, used = done.stdout.strip().rpartition("\n")[2].split()
    return {"took_s": float(took), "cpu_s": float(used), "whole_s": whole_s}


if __name__ == "__main__":
    main()
