"""Several files, started with -m."""

from types import SimpleNamespace

from .data import Loader
from .engine import Model, Optimizer, run_epoch

config = {"lr": 0.4, "optim": {"epochs": 4}, "name": "small"}


def main(cfg):
    model = Model()
    optimizer = Optimizer(model, cfg.lr)
    loader = Loader(40, 8, seed=2)
    # probe before: len(loader)
    for _ in range(cfg.epochs):
        loss = run_epoch(model, optimizer, loader)
        # probe epoch: model.weight * optimizer.steps
        print("loss =", loss)
    # probe after: model.weight
    return model


if __name__ == "__main__":
    main(SimpleNamespace(lr=config["lr"], epochs=config["optim"]["epochs"]))
