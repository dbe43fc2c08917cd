"""What histograms of all weights, gradients and activations cost a training: logged at once, and in the background."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench.measuring import project, report, run_script

ROUNDS = 3

# SqueezeNet for images of 32×32 and 100 classes, as in Figure 1 of the Flor paper, on random data. The measured part
# is two epochs with four logs each, and the wait until all of it is written; before it, everything is used once.
TRAIN = """
import glob, hashlib, json, os, tempfile, time
import torch
from torch import nn

BATCH, STEPS, EPOCHS, MODE = 16, 40, 2, os.environ["MODE"]
torch.manual_seed(0)
torch.set_num_threads(2)

def block(into, out, size):
    return nn.Sequential(nn.Conv2d(into, out, size, padding=size // 2), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

class Fire(nn.Module):
    def __init__(self, into, out, squeezed):
        super().__init__()
        self.squeeze = block(into, squeezed, 1)
        self.one, self.three = block(squeezed, out // 2, 1), block(squeezed, out // 2, 3)

    def forward(self, x):
        x = self.squeeze(x)
        return torch.cat([self.one(x), self.three(x)], 1)

net = nn.Sequential(
    block(3, 96, 3), nn.MaxPool2d(2), Fire(96, 128, 16), Fire(128, 128, 16), Fire(128, 256, 32), nn.MaxPool2d(2),
    Fire(256, 256, 32), Fire(256, 384, 48), Fire(384, 384, 48), Fire(384, 512, 64), nn.MaxPool2d(2), Fire(512, 512, 64),
    nn.Conv2d(512, 100, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=5e-4)
images, labels = torch.randn(4, BATCH, 3, 32, 32), torch.randint(100, (4, BATCH))

activations = {}
def keep(name):
    return lambda module, given, output: activations.update({name: output.detach()}) if logging else None
for name, module in net.named_modules():
    if isinstance(module, nn.Conv2d | nn.ReLU):
        module.register_forward_hook(keep(name))

def train(steps, step):
    global logging
    for i in range(steps):
        logging = MODE != "none" and (i + 1) % (STEPS // 4) == 0
        loss = nn.functional.cross_entropy(net(images[i % 4]), labels[i % 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if logging:
            for name, value in activations.items():
                writer.add_histogram("activations/" + name, value, step + i)
            for name, value in net.named_parameters():
                writer.add_histogram("weights/" + name, value, step + i)
                writer.add_histogram("gradients/" + name, value.grad, step + i)

folder = tempfile.mkdtemp(dir=".")
if MODE != "none":
    from torch.utils.tensorboard import SummaryWriter
    import relive
if MODE == "direct":
    writer = SummaryWriter(folder)
elif MODE == "thread":
    writer = relive.background(SummaryWriter(folder))
elif MODE == "process":
    writer = relive.background(SummaryWriter, folder)
train(STEPS // 4, 0)
if MODE != "none":
    writer.flush()

begun = time.perf_counter()
for epoch in range(EPOCHS):
    train(STEPS, (epoch + 1) * STEPS)
trained_s = time.perf_counter() - begun
if MODE != "none":
    writer.flush()
written_s = time.perf_counter() - begun

digest, count = hashlib.sha256(), 0
if MODE != "none":
    writer.close()
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    for path in sorted(glob.glob(folder + "/*")):
        for event in LegacyEventFileLoader(path).Load():
            for value in event.summary.value:
                value.histo.sum_squares = 0  # its last bits depend on how many threads the numeric library has
                digest.update(f"{event.step} {value.tag}".encode() + value.histo.SerializeToString(deterministic=True))
                count += 1
result = dict(trained_s=trained_s, written_s=written_s, histograms=count, digest=digest.hexdigest())
open(os.environ["BENCH_RESULT"], "w").write(json.dumps(result))
"""
GOALS = {"less_overhead": ">= 3", "less_overhead_until_written": "higher is better", "same_events": "true"}


def main() -> None:
    """Alternate the ways to log, so that a machine that changes its mind shows in all of them."""
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in ("none", "direct", "process", "thread")}
    with project(TRAIN) as folder:
        for _ in range(ROUNDS):
            for mode, results in runs.items():
                results.append(_run(folder, mode))
    costs = {mode: _costs(runs, mode) for mode in ("direct", "process", "thread")}
    report(
        "background", GOALS, epoch_s=statistics.median(run["written_s"] for run in runs["none"]) / 2,
        histograms=runs["direct"][0]["histograms"],
        **{f"{mode}_overhead": trained for mode, (trained, _) in costs.items()},
        **{f"{mode}_overhead_until_written": written for mode, (_, written) in costs.items()},
        less_overhead=costs["direct"][0] / costs["process"][0],
        less_overhead_until_written=costs["direct"][1] / costs["process"][1],
        same_events=len({run["digest"] for mode in costs for run in runs[mode]}) == 1,
    )  # fmt: skip


def _costs(runs: dict[str, list[dict[str, Any]]], mode: str) -> tuple[float, float]:
    """What a way to log adds to the training, and to the time until everything is written; medians of the rounds."""
    pairs = list(zip(runs["none"], runs[mode], strict=True))
    trained = statistics.median(logged["trained_s"] / plain["trained_s"] - 1 for plain, logged in pairs)
    return trained, statistics.median(logged["written_s"] / plain["written_s"] - 1 for plain, logged in pairs)


def _run(folder: Path, mode: str) -> dict[str, Any]:
    result: dict[str, Any] = run_script(folder, MODE=mode)
    return result


if __name__ == "__main__":
    main()
