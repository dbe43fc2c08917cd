"""A trainer class with a meter, a schedule and a history."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Config:
    lr: float = 0.2
    epochs: int = 4
    batch_size: int = 16


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count = 0.0, 0

    def add(self, value):
        self.total += value
        self.count += 1

    @property
    def mean(self):
        return self.total / max(1, self.count)


class Momentum:
    def __init__(self, lr):
        self.lr = lr
        self.velocity = np.zeros(6)

    def step(self, weights, grad):
        self.velocity = 0.9 * self.velocity - self.lr * grad
        weights += self.velocity


class Trainer:
    def __init__(self, config):
        self.config = config
        self.rng = np.random.RandomState(3)
        self.x = self.rng.randn(80, 6)
        self.y = self.x @ self.rng.randn(6) + 0.1 * self.rng.randn(80)
        self.weights = np.zeros(6)
        self.optimizer = Momentum(config.lr)
        self.meter = Meter()
        self.best = float("inf")

    def train_epoch(self):
        self.meter.reset()
        order = self.rng.permutation(len(self.x))
        for start in range(0, len(self.x), self.config.batch_size):
            rows = order[start : start + self.config.batch_size]
            error = self.x[rows] @ self.weights - self.y[rows]
            self.optimizer.step(self.weights, self.x[rows].T @ error / len(rows))
            self.meter.add(float((error**2).mean()))
            # probe inside: float(self.optimizer.velocity.sum())

    def fit(self):
        # probe before: float(self.y.sum())
        for epoch in range(self.config.epochs):
            self.train_epoch()
            self.best = min(self.best, self.meter.mean)
            self.optimizer.lr *= 0.7
            # probe epoch: self.best + self.optimizer.lr
            print(f"epoch {epoch} | loss {self.meter.mean:.4f} | best {self.best:.4f}")
        # probe after: float(self.weights.sum())


if __name__ == "__main__":
    Trainer(Config()).fit()
