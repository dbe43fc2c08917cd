"""xgb.train, continued from the last booster again and again, with a callback that collects."""

import numpy as np
import xgboost as xgb


class Collect(xgb.callback.TrainingCallback):
    """Keeps every evaluation."""

    def __init__(self):
        self.kept = []

    def after_iteration(self, model, epoch, evals_log):
        self.kept.append(evals_log["train"]["rmse"][-1])
        return False


rng = np.random.default_rng(10)
x = rng.normal(size=(120, 3))
train = xgb.DMatrix(x, label=x.sum(1))
collect, booster = Collect(), None

for epoch in range(5):
    booster = xgb.train(
        {"max_depth": 2, "nthread": 1, "subsample": 0.7, "seed": epoch}, train, 2, evals=[(train, "train")],
        xgb_model=booster, callbacks=[collect], verbose_eval=False,
    )  # fmt: skip
    print("error:", collect.kept[-1])
    # probe late_kept: sum(collect.kept)
    # probe late_rounds: float(booster.num_boosted_rounds())
# probe after_kept: float(len(collect.kept))
# probe after_sum: float(booster.predict(train).sum())
