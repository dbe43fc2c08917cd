"""A config as hydra would give it: a tree of settings with overrides from the command line, and what it names built."""

import importlib
import sys
from dataclasses import dataclass, field

import torch


@dataclass
class Optim:
    target: str = "torch.optim.SGD"
    lr: float = 0.1
    momentum: float = 0.9


@dataclass
class Model:
    hidden: int = 8
    dropout: float = 0.1


@dataclass
class Config:
    optim: Optim = field(default_factory=Optim)
    model: Model = field(default_factory=Model)
    epochs: int = 4
    seed: int = 3


def overridden(config, words):
    for word in words:
        way, _, text = word.partition("=")
        *outer, last = way.split(".")
        owner = config
        for name in outer:
            owner = getattr(owner, name)
        setattr(owner, last, type(getattr(owner, last))(text))
    return config


def instantiate(target, *args, **options):
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)(*args, **options)


class Metrics(dict):
    """Sums by name, with a state_dict of its own."""

    def add(self, **values):
        for name, value in values.items():
            self[name] = self.get(name, 0.0) + value

    def state_dict(self):
        return dict(self)


def main(config):
    torch.manual_seed(config.seed)
    x = torch.randn(48, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).sin())
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, config.model.hidden), torch.nn.Dropout(config.model.dropout), torch.nn.Tanh(),
        torch.nn.Linear(config.model.hidden, 1),
    )  # fmt: skip
    optimizer = instantiate(config.optim.target, net.parameters(), lr=config.optim.lr, momentum=config.optim.momentum)
    metrics = Metrics()
    # probe before: net[0].weight.sum().item()
    for epoch in range(config.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
            loss.backward()
            optimizer.step()
            metrics.add(loss=loss.item(), seen=len(inputs))
            # probe inside: loss.item() + metrics["seen"]
        # probe epoch: metrics["loss"] + net[0].weight.sum().item()
        print(f"epoch {epoch}: total loss {metrics['loss']:.4f}")
    # probe after: metrics["loss"] + metrics["seen"]
    print("final:", metrics["seen"])


if __name__ == "__main__":
    main(overridden(Config(), sys.argv[1:]))
