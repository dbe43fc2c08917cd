"""A script without functions: logistic regression by hand."""

import numpy as np

LR = 0.5
EPOCHS = 4
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 5))
y = (x @ rng.normal(size=5) > 0).astype(float)
w = np.zeros(5)
b = 0.0
history = []
# probe before: float(x.sum())
for epoch in range(EPOCHS):
    order = rng.permutation(len(x))
    losses = []
    for i in range(0, len(x), 16):
        batch = order[i : i + 16]
        p = 1 / (1 + np.exp(-(x[batch] @ w + b)))
        grad = x[batch].T @ (p - y[batch]) / len(batch)
        w -= LR * grad
        b -= LR * (p - y[batch]).mean()
        losses.append(-np.log(np.clip(np.where(y[batch] > 0, p, 1 - p), 1e-9, None)).mean())
        # probe inside: float(np.abs(grad).max())
    history.append(np.mean(losses))
    # probe epoch: float(w @ w) + b
    print("epoch", epoch, "loss:", history[-1])
# probe after: float(sum(history)) + w[0]
print("final loss", history[-1])
