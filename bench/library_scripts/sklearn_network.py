"""A small network of scikit-learn with its own Adam, kept in a dict beside a naive Bayes."""

import numpy as np
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPRegressor

rng = np.random.default_rng(13)
models = {"net": MLPRegressor(hidden_layer_sizes=(8,), random_state=2), "bayes": GaussianNB()}
x = rng.normal(size=(60, 3))
y = np.sin(x[:, 0])

for epoch in range(6):
    order = rng.permutation(60)
    models["net"].partial_fit(x[order], y[order])
    models["bayes"].partial_fit(x[order[:20]], y[order[:20]] > 0, classes=[False, True])
    print("loss:", float(models["net"].loss_))
    # probe late_weights: float(sum(w.sum() for w in models["net"].coefs_))
    # probe late_bayes: float(models["bayes"].theta_.sum())
# probe after_curve: float(sum(models["net"].loss_curve_))
# probe after_steps: float(models["net"]._optimizer.t)
