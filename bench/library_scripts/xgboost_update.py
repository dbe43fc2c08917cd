"""XGBoost, one round at a time."""

import numpy as np
import xgboost as xgb

rng = np.random.default_rng(9)
x = rng.normal(size=(200, 4))
y = x[:, 0] * 2 + x[:, 1] ** 2 + 0.1 * rng.normal(size=200)
train, valid = xgb.DMatrix(x[:150], label=y[:150]), xgb.DMatrix(x[150:], label=y[150:])
params = {"max_depth": 2, "eta": 0.3, "subsample": 0.8, "seed": 1, "nthread": 1}
booster = xgb.Booster(params, [train, valid])

for epoch in range(8):
    booster.update(train, epoch)
    if epoch == 5:
        booster.set_param("eta", 0.1)
    error = float(booster.eval(valid).rpartition(":")[2])
    print("error:", error)
    # probe late_rounds: float(booster.num_boosted_rounds())
    # probe late_sum: float(booster.predict(valid).sum())
# probe after_rounds: float(booster.num_boosted_rounds())
# probe after_sum: float(booster.predict(train).sum())
