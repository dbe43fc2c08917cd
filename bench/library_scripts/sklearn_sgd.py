"""A linear classifier of scikit-learn, and the scaler before it, batch by batch."""

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

rng = np.random.default_rng(11)
scaler = StandardScaler()
classifier = SGDClassifier(loss="log_loss", random_state=0, average=True)
classes = np.array([0, 1])

for epoch in range(6):
    for _ in range(3):
        x = rng.normal(size=(32, 4)) * [1, 2, 3, 4]
        y = (x[:, 0] + x[:, 1] > 0).astype(int)
        scaler.partial_fit(x)
        classifier.partial_fit(scaler.transform(x), y, classes=classes)
    print("loss:", log_loss(y, classifier.predict_proba(scaler.transform(x))))
    # probe late_weights: float(classifier.coef_.sum())
    # probe late_mean: float(scaler.mean_.sum())
# probe after_steps: float(classifier.t_)
# probe after_weights: float(classifier.coef_.sum() + scaler.var_.sum())
