"""Small real trainings, each run twice: recorded, then restored in a fresh process and continued."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

import relive

EPOCHS, RESTORED_EPOCH = 4, 1  # restored after epoch 1, epochs 2 and 3 are compared


class Recorded:
    """Runs a training from the start and records it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[tuple[str, float]] = []

    def checkpointing(self, **objects: Any) -> AbstractContextManager[None]:
        return relive.checkpointing(every=1, **objects)

    def epochs(self) -> Iterable[int]:
        return relive.loop("epoch", range(EPOCHS))

    def log(self, name: str, value: float) -> None:
        relive.log(name, value)

    def loop_carried(self, **values: Any) -> dict[str, Any]:
        return values


class Restored(Recorded):
    """Continues the training from the checkpoint of RESTORED_EPOCH, in a process that did not run epochs before it."""

    def __init__(self, name: str, run: str, home: str) -> None:
        super().__init__(name)
        self._run, self._home = run, home

    def checkpointing(self, **objects: Any) -> AbstractContextManager[None]:
        local = sys._getframe(1).f_locals
        state = relive.restore(self._run, epoch=RESTORED_EPOCH, home=self._home)
        discovered = {name: local[name] for name in state.discovered() if name in local}
        state.restore({**objects, **discovered}, random=True)
        self._variables = state.variables()
        return nullcontext()

    def epochs(self) -> Iterable[int]:
        return range(RESTORED_EPOCH + 1, EPOCHS)

    def log(self, name: str, value: float) -> None:
        self.values.append((name, float(value)))

    def loop_carried(self, **values: Any) -> dict[str, Any]:
        return {name: self._variables[name] for name in values}


def _data(seed: int = 3) -> torch.utils.data.TensorDataset:
    maker = torch.Generator().manual_seed(seed)
    x = torch.randn(96, 1, 8, 8, generator=maker)
    return torch.utils.data.TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())


def _loader(**how: Any) -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(_data(), batch_size=16, shuffle=True, **how)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(144, 2)
    )


def _epoch(run: Recorded, net: nn.Module, optimizer: Any, loader: Any) -> None:
    net.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log("loss", loss.item())
    net.eval()


def mlp_sgd(run: Recorded) -> None:
    net, loader = _mlp(), _loader()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with run.checkpointing(model=net, optimizer=optimizer):
        for _ in run.epochs():
            _epoch(run, net, optimizer, loader)


def cnn_adamw_cosine(run: Recorded) -> None:
    net, loader = _cnn(), _loader()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    with run.checkpointing(model=net, optimizer=optimizer):
        for _ in run.epochs():
            _epoch(run, net, optimizer, loader)
            scheduler.step()
            run.log("noise", random.random() + float(np.random.rand()))


def adamw_fused(run: Recorded) -> None:
    net, loader = _mlp(), _loader()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    with run.checkpointing(model=net, optimizer=optimizer):
        for _ in run.epochs():
            _epoch(run, net, optimizer, loader)


def two_workers(run: Recorded) -> None:
    net, loader = _mlp(), _loader(num_workers=2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with run.checkpointing(model=net, optimizer=optimizer):
        for _ in run.epochs():
            _epoch(run, net, optimizer, loader)


def own_generators(run: Recorded) -> None:
    shuffle, noise = torch.Generator().manual_seed(1), np.random.default_rng(2)
    net, loader = _mlp(), _loader(generator=shuffle)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with run.checkpointing(model=net, optimizer=optimizer):
        for _ in run.epochs():
            _epoch(run, net, optimizer, loader)
            run.log("noise", noise.random())


def accumulation(run: Recorded) -> None:
    net, loader = _mlp(), _loader()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = 0
    with run.checkpointing(model=net, optimizer=optimizer):
        step = run.loop_carried(step=step)["step"]
        for _ in run.epochs():
            optimizer.zero_grad()
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y) / 3
                loss.backward()
                step += 1
                if step % 3 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                run.log("loss", loss.item())
            run.log("step", step)


def ema(run: Recorded) -> None:
    net, loader = _cnn(), _loader()
    average = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with run.checkpointing(model=net, optimizer=optimizer, average=average):
        for _ in run.epochs():
            _epoch(run, net, optimizer, loader)
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), net.parameters(), strict=True):
                    slow.data.mul_(0.9).add_(fast.data, alpha=0.1)
            run.log("average", sum(p.sum().item() for p in average.parameters()))


def autocast_bf16(run: Recorded) -> None:
    net, loader = _mlp(), _loader()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with run.checkpointing(model=net, optimizer=optimizer):
        for _ in run.epochs():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                _epoch(run, net, optimizer, loader)


def numpy_only(run: Recorded) -> None:
    weights, velocity = np.zeros(5), np.zeros(5)
    data = np.random.default_rng(0).normal(size=(50, 5))
    best = float("inf")
    with run.checkpointing(weights=weights, velocity=velocity):
        best = run.loop_carried(best=best)["best"]
        for _ in run.epochs():
            for row in np.random.permutation(data):
                gradient = (row @ weights - row.sum()) * row
                velocity *= 0.9
                velocity += gradient
                weights -= 0.01 * velocity
            error = float(np.square(data @ weights - data.sum(1)).mean())
            best = min(best, error)
            run.log("error", error)
            run.log("best", best)


def partial_fit(run: Recorded) -> None:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(random_state=np.random.RandomState(4))
    x = np.random.default_rng(0).normal(size=(60, 4))
    y = (x.sum(1) > 0).astype(int)
    with run.checkpointing(model=model):
        for _ in run.epochs():
            order = np.random.permutation(60)
            model.partial_fit(x[order], y[order], classes=[0, 1])
            run.log("weight", float(model.coef_.sum()))


TRAININGS = {
    function.__name__: function
    for function in (
        mlp_sgd, cnn_adamw_cosine, adamw_fused, two_workers, own_generators, accumulation, ema, autocast_bf16,
        numpy_only, partial_fit,
    )
}  # fmt: skip


def seed_all() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def main() -> None:
    """`record NAMES` prints {name: run}; `restore HOME {name: run}` prints {name: values}."""
    if sys.argv[1] == "record":
        runs = {}
        for name in sys.argv[2:]:
            seed_all()
            with relive.run(name) as run:
                TRAININGS[name](Recorded(name))
            runs[name] = run
        print(json.dumps(runs))
    else:
        values = {}
        for name, run in json.loads(sys.argv[3]).items():
            torch.manual_seed(99)  # another state than the recorded one
            again = Restored(name, run, sys.argv[2])
            TRAININGS[name](again)
            values[name] = again.values
        print(json.dumps(values))


if __name__ == "__main__":
    main()
