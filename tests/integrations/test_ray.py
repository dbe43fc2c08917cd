"""Laws of sweeps with Ray Tune: trials are runs, and Tune's own schedulers see the values of the whole fleet."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import relive
from relive.model import PRUNED
from relive.store import Home
from relive.store.catalog import Index

pytest.importorskip("ray.tune")
from ray.tune.schedulers import ASHAScheduler, MedianStoppingRule, TrialScheduler

from relive.integrations.ray import ReliveCallback


@pytest.fixture(autouse=True)
def here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELIVE_VERSIONS", "0")


CONTROLLER = SimpleNamespace(get_live_trials=list)


class Trial(SimpleNamespace):
    """What a callback and a scheduler see of a trial."""

    def __init__(self, name: str, lr: float) -> None:
        super().__init__(trial_id=name, config={"lr": lr, "net": {"width": 8}}, error_file="e")

    def should_stop(self, result: dict[str, Any]) -> bool:
        return bool(result["done"])

    def __hash__(self) -> int:
        return hash(self.trial_id)

    def __str__(self) -> str:
        return self.trial_id


def run_trial(callback: ReliveCallback, trial: Trial, values: list[float], scheduler: Any = None) -> list[str]:
    """Drive one trial as Tune would; gives what the scheduler decided."""
    callback.on_trial_start(0, [trial], trial)
    if scheduler is not None:
        scheduler.on_trial_add(CONTROLLER, trial)
    decisions = []
    for step, value in enumerate(values, 1):
        result = {"training_iteration": step, "loss": value, "time_total_s": 1.0, "done": False}
        decided = scheduler.on_trial_result(CONTROLLER, trial, result) if scheduler else TrialScheduler.CONTINUE
        decisions.append(decided)
        result["done"] = decided == TrialScheduler.STOP
        callback.on_trial_result(0, [trial], trial, result)
        if decisions[-1] == TrialScheduler.STOP:
            break
    callback.on_trial_complete(0, [trial], trial)
    return decisions


def records(home: Path) -> list[Any]:
    return [entry.record for entry in Index(Home(home)).runs()]


def test_each_trial_is_a_run_with_its_config_and_what_it_reported(home: Path) -> None:
    callback = ReliveCallback("night")
    callback.setup()
    run_trial(callback, Trial("a", 0.1), [2.0, 1.0])
    run_trial(callback, Trial("b", 0.2), [3.0])

    first, second = records(home)
    assert [(r.sweep, r.trial, r.tags["trial_id"], r.outcome) for r in (first, second)] == [
        ("night", 0, "a", "finished"),
        ("night", 1, "b", "finished"),
    ]
    assert {name: arg["value"] for name, arg in first.config["args"].items()} == {"lr": 0.1, "net.width": 8}
    frame = relive.dataframe("loss", home=home)
    assert frame[["training_iteration", "loss"]].to_numpy().tolist() == [[1, 2.0], [2, 1.0], [1, 3.0]]


def test_a_trial_that_fails_is_a_run_that_failed(home: Path) -> None:
    callback, trial = ReliveCallback("night"), Trial("a", 0.1)
    callback.on_trial_start(0, [trial], trial)
    callback.on_trial_error(0, [trial], trial)

    (record,) = records(home)
    assert (record.outcome, record.error["type"]) == ("failed", "TrialFailed")


@pytest.mark.parametrize("rule", ["median", "asha"])
def test_a_scheduler_compares_with_the_runs_of_other_processes(home: Path, rule: str) -> None:
    def scheduler() -> Any:
        if rule == "median":
            how = {"time_attr": "training_iteration", "grace_period": 1, "min_samples_required": 2}
            return MedianStoppingRule(metric="loss", mode="min", **how)
        return ASHAScheduler(metric="loss", mode="min", grace_period=1, max_t=9, reduction_factor=2)

    others = ReliveCallback("night")
    for at in range(4):
        run_trial(others, Trial(f"other-{at}", 0.1), [0.5 + at / 10] * 8)

    blind, seeing = scheduler(), scheduler()
    alone = ReliveCallback("else", scheduler=blind, name="loss")
    fleet = ReliveCallback("night", scheduler=seeing, name="loss")
    alone.setup()
    fleet.setup()
    assert TrialScheduler.STOP not in run_trial(alone, Trial("x", 0.9), [90.0] * 8, blind)
    assert run_trial(fleet, Trial("y", 0.9), [90.0] * 8, seeing)[-1] == TrialScheduler.STOP
    assert PRUNED in records(home)[-1].tags
    assert PRUNED not in records(home)[0].tags


def test_a_callback_can_be_saved_while_runs_are_open(home: Path) -> None:
    callback, trial = ReliveCallback("night"), Trial("a", 0.1)
    callback.on_trial_start(0, [trial], trial)

    again = pickle.loads(pickle.dumps(callback))
    again.on_trial_complete(0, [trial], trial)
    callback.on_trial_complete(0, [trial], trial)
    assert len(records(home)) == 1


@pytest.mark.slow
def test_a_real_tune_experiment_is_recorded(home: Path, script: Any) -> None:
    script(
        """
        import os, ray
        from ray import tune
        from ray.tune import RunConfig, TuneConfig, Tuner
        from ray.tune.schedulers import ASHAScheduler
        from relive.integrations.ray import ReliveCallback

        def train(config):
            for step in range(8):
                tune.report({"loss": abs(config["lr"] - 0.1) + 1 / (step + 1)})

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        asha = ASHAScheduler(metric="loss", mode="min", grace_period=1, max_t=8, reduction_factor=2)
        callback = ReliveCallback("night", scheduler=asha, name="loss")
        space = {"lr": tune.grid_search([0.1, 0.5, 0.9])}
        run_config = RunConfig(storage_path=os.path.abspath("ray"), verbose=0, callbacks=[callback])
        how = TuneConfig(scheduler=asha, max_concurrent_trials=1)
        Tuner(train, param_space=space, tune_config=how, run_config=run_config).fit()
        """,
        timeout=400,
    )

    found = records(home)
    assert [(r.sweep, r.trial) for r in found] == [("night", 0), ("night", 1), ("night", 2)]
    assert [PRUNED in r.tags for r in found] == [False, True, True]
