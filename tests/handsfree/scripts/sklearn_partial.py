"""Estimators of scikit-learn that learn bit by bit, with a scaler of their own."""

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

rng = np.random.RandomState(0)
x = rng.randn(90, 4)
y = (x[:, 0] - x[:, 1] > 0).astype(int)
model = SGDClassifier(random_state=1, learning_rate="constant", eta0=0.1)
scaler = StandardScaler()
# probe before: float(x.sum())
for epoch in range(4):
    order = rng.permutation(90)
    for batch in np.array_split(order, 6):
        scaler.partial_fit(x[batch])
        model.partial_fit(scaler.transform(x[batch]), y[batch], classes=[0, 1])
        # probe inside: float(model.coef_.sum()) + model.t_
    score = model.score(scaler.transform(x), y)
    # probe epoch: float(scaler.mean_.sum())
    print(f"epoch {epoch}: accuracy {score:.4f}, intercept {model.intercept_[0]:.4f}")
# probe after: float(model.coef_[0, 0])
