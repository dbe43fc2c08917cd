"""k-fold cross validation: every fold has a model of its own."""

import numpy as np


class Adam:
    """A small one, with its moments."""

    def __init__(self, lr):
        self.lr, self.t = lr, 0
        self.m = self.v = 0.0

    def step(self, weights, grad):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * grad
        self.v = 0.99 * self.v + 0.01 * grad**2
        weights -= self.lr * (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.99**self.t)) + 1e-8)


rng = np.random.default_rng(7)
x = rng.normal(size=(60, 4))
y = x @ np.array([1.0, -2.0, 0.5, 3.0]) + 0.1 * rng.normal(size=60)
scores = []
# probe before: float(y.mean())
for fold in range(3):
    test = np.arange(60) % 3 == fold
    weights = rng.normal(size=4) * 0.1
    optimizer = Adam(0.1)
    for epoch in range(3):
        rows = rng.permutation(np.flatnonzero(~test))
        for start in range(0, len(rows), 10):
            batch = rows[start : start + 10]
            grad = x[batch].T @ (x[batch] @ weights - y[batch]) / len(batch)
            optimizer.step(weights, grad)
            # probe inside: float(grad.sum())
        # probe epoch: float(weights.sum()) + optimizer.t
        print(f"fold {fold} epoch {epoch} train error: {np.abs(x[~test] @ weights - y[~test]).mean()}")
    scores.append(float(((x[test] @ weights - y[test]) ** 2).mean()))
    print(f"fold {fold} mse: {scores[-1]:.5f}")
# probe after: sum(scores)
print("mean mse", np.mean(scores))
