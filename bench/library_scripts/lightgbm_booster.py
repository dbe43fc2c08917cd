"""LightGBM, one round at a time."""

import lightgbm as lgb
import numpy as np

rng = np.random.default_rng(8)
x = rng.normal(size=(200, 5))
y = (x[:, 0] + 0.3 * rng.normal(size=200) > 0).astype(int)
train = lgb.Dataset(x, label=y, free_raw_data=False)
params = {"objective": "binary", "verbose": -1, "num_leaves": 4, "bagging_fraction": 0.7, "bagging_freq": 1, "seed": 3,
          "num_threads": 1, "deterministic": True}  # fmt: skip
booster = lgb.Booster(params=params, train_set=train)
curve = {"loss": []}

for epoch in range(8):
    booster.update()
    ((_, _, loss, _),) = booster.eval_train()
    curve["loss"].append(loss)
    if epoch == 4:
        booster.reset_parameter({"learning_rate": 0.05})
    print("loss:", loss)
    # probe late_trees: float(booster.num_trees())
    # probe late_margin: float(booster.predict(x, raw_score=True).sum())
# probe after_trees: float(booster.num_trees())
# probe after_gain: float(booster.feature_importance("gain").sum())
