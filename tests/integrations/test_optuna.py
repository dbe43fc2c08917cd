"""Laws of sweeps with Optuna: trials are runs, and its own rules judge by the values of the whole fleet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.errors import ReliveError
from relive.model import PRUNED
from relive.query.compare import SweepMember, SweepValues
from relive.store import Home
from relive.store.catalog import Index

optuna = pytest.importorskip("optuna")
from relive.integrations.optuna import FleetPruner, ReliveCallback, recorded  # noqa: E402
from relive.integrations.sweep_pruner import FleetStudy  # noqa: E402


@pytest.fixture(autouse=True)
def quiet(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELIVE_VERSIONS", "0")
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def study(values: list[float], pruner: Any = None, **how: Any) -> Any:
    """A study whose trials try these values in turn."""
    sampler = optuna.samplers.RandomSampler(seed=0)
    made = optuna.create_study(study_name="lr", sampler=sampler, pruner=pruner or optuna.pruners.NopPruner(), **how)
    for value in values:
        made.enqueue_trial({"x": value})
    return made


def objective(steps: int = 5) -> Callable[[Any], float]:
    def run(trial: Any) -> float:
        x = trial.suggest_float("x", -100, 100)
        for step in relive.loop("epoch", range(steps)):
            trial.report(relive.log("val_loss", abs(x) + 1 / (step + 1)), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return abs(x)

    return run


def records(home: Path) -> list[Any]:
    return [entry.record for entry in Index(Home(home)).runs()]


def test_each_trial_is_a_run_with_its_sweep_number_params_and_value(home: Path) -> None:
    study([1.0, 2.0]).optimize(recorded(objective()), n_trials=2)

    found = records(home)
    assert [(r.sweep, r.trial, r.config["args"]["x"]["value"], r.outcome) for r in found] == [
        ("lr", 0, 1.0, "finished"),
        ("lr", 1, 2.0, "finished"),
    ]
    assert relive.leaderboard("objective", order="min", where="sweep = 'lr'", home=home)["value"].tolist() == [1.0, 2.0]
    sweep = relive.sql("select sweep, trial from runs order by trial", home=home)
    assert sweep.to_numpy().tolist() == [["lr", 0], ["lr", 1]]


def test_a_pruned_trial_is_a_decision_and_a_failed_one_a_failure(home: Path) -> None:
    def bad(trial: Any) -> float:
        relive.log("val_loss", 1.0)
        raise optuna.TrialPruned if trial.number == 0 else ValueError("no")

    made = study([1.0, 2.0])
    made.optimize(recorded(bad), n_trials=2, catch=ValueError)

    pruned, failed = records(home)
    assert (pruned.outcome, PRUNED in pruned.tags) == ("pruned", True)
    assert (failed.outcome, PRUNED in failed.tags) == ("failed", False)
    assert [trial.state.name for trial in made.trials] == ["PRUNED", "FAIL"]


def test_a_new_study_is_pruned_by_what_other_processes_have_found(home: Path) -> None:
    rule = {"n_startup_trials": 3, "n_warmup_steps": 1}
    study([0.1, 0.2, 0.3]).optimize(recorded(objective()), n_trials=3)
    alone, seeing = optuna.pruners.MedianPruner(**rule), FleetPruner("val_loss", optuna.pruners.MedianPruner(**rule))

    blind, fair = study([50.0], alone), study([50.0, 0.15], seeing)
    fair.optimize(recorded(objective()), n_trials=2)
    assert [trial.state.name for trial in fair.trials] == ["PRUNED", "COMPLETE"]
    assert fair.trials[0].last_step == 1
    blind.optimize(recorded(objective()), n_trials=1)
    assert blind.trials[0].state.name == "COMPLETE"


def test_successive_halving_sees_the_rungs_of_the_fleet(home: Path) -> None:
    rule = {"min_resource": 1, "reduction_factor": 2}
    study([0.1, 0.2, 0.3, 0.4]).optimize(recorded(objective()), n_trials=4)

    seeing = study([50.0, 0.05], FleetPruner("val_loss", optuna.pruners.SuccessiveHalvingPruner(**rule)))
    seeing.optimize(recorded(objective()), n_trials=2)
    assert [trial.state.name for trial in seeing.trials] == ["PRUNED", "COMPLETE"]


def test_a_callback_records_what_optuna_knows(home: Path) -> None:
    def silent(trial: Any) -> float:
        for step in (0, 10):
            trial.report(step + 0.5, step)
        return trial.suggest_float("x", -100, 100)

    study([3.0]).optimize(silent, n_trials=1, callbacks=[ReliveCallback("loss")])

    (record,) = records(home)
    assert (record.sweep, record.trial, record.config["args"]["x"]["value"]) == ("lr", 0, 3.0)
    assert relive.dataframe("loss", home=home)[["step", "loss"]].to_numpy().tolist() == [[0, 0.5], [10, 10.5]]


@pytest.mark.parametrize("values", [[3.0, 1.0, 2.0, 9.0], [1.0, 1.0, 1.0, 1.0], [5.0, 4.0, 3.0, 2.0]])
@pytest.mark.parametrize("order", ["min", "max"])
def test_the_fleet_study_decides_as_a_study_with_the_same_values(values: list[float], order: str) -> None:
    def rule() -> Any:
        return optuna.pruners.MedianPruner(n_startup_trials=1)

    own, fleet_study = values[-1], FleetStudy(rule(), order)
    direct = optuna.create_study(direction="minimize" if order == "min" else "maximize", pruner=rule())
    for at, value in enumerate(values[:-1]):
        fleet_study.add(SweepMember(str(at), at, "finished", False, None, {0: value, 1: value}))
        trial = direct.ask()
        trial.report(value, 0)
        trial.report(value, 1)
        direct.tell(trial, value)
    trial = direct.ask()
    trial.report(own, 1)

    assert fleet_study.should_prune("own", {1: own}) == trial.should_prune()


def test_the_values_of_a_fleet_are_by_the_loop_they_were_logged_in(home: Path) -> None:
    with relive.run(tags={"sweep": "s", "trial": 7}):
        for epoch in relive.loop("epoch", range(10, 13)):
            relive.log("loss", float(epoch))
            for _ in relive.loop("step", range(2)):
                relive.log("inner", 1.0)
        relive.log("end", 2.0)
    with relive.run(tags={"sweep": "other"}):
        relive.log("loss", 5.0)

    fleet = SweepValues(Index(Home(home)), "s")
    (member,) = fleet.members("loss")
    assert (member.trial, member.values) == (7, {10: 10.0, 11: 11.0, 12: 12.0})
    assert list(fleet.members("inner")[0].values) == list(range(6))
    assert fleet.members("end")[0].values == {0: 2.0}


# --- relive.should_prune ----------------------------------------------------------------------------------------------


def fleet_of(*values: float, sweep: str = "s", data: str = "same") -> None:
    for at, value in enumerate(values):
        with relive.run(tags={"sweep": sweep, "trial": at}):
            relive.data("train", [data])
            for epoch in relive.loop("epoch", range(4)):
                relive.log("val_loss", value + 0.0 * epoch)


def prune_decisions(value: float, *, data: str = "same", tags: dict[str, Any] | None = None, **rule: Any) -> list[bool]:
    answers = []
    with relive.run(tags={"sweep": "s"} if tags is None else tags):
        relive.data("train", [data])
        for epoch in relive.loop("epoch", range(4)):
            relive.log("val_loss", value)
            answers.append(relive.should_prune("val_loss", epoch, **rule))
            if answers[-1]:
                break
    return answers


def test_a_run_worse_than_the_median_is_pruned_and_a_better_one_is_not(home: Path) -> None:
    fleet_of(1.0, 2.0, 3.0, 4.0, 5.0)

    assert prune_decisions(9.0) == [True]
    assert prune_decisions(0.5) == [False] * 4
    pruned, kept = records(home)[-2:]
    assert pruned.tags[PRUNED] == {"name": "val_loss", "step": 0}
    assert PRUNED not in kept.tags


def test_the_pruner_and_the_order_can_be_chosen(home: Path) -> None:
    fleet_of(1.0, 2.0, 3.0)
    late = optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=2)

    assert prune_decisions(9.0) == [False] * 4  # the median rule wants five others
    assert prune_decisions(9.0, pruner=late) == [False, False, True]
    assert prune_decisions(0.5, pruner=optuna.pruners.MedianPruner(n_startup_trials=1), order="max") == [True]


def test_runs_on_other_data_do_not_count(home: Path) -> None:
    fleet_of(1.0, 2.0, 3.0, 4.0, 5.0, data="other")

    rule = optuna.pruners.MedianPruner(n_startup_trials=1)
    assert prune_decisions(9.0, pruner=rule) == [False] * 4


def test_a_run_of_no_sweep_continues_with_a_warning(home: Path, recwarn: pytest.WarningsRecorder) -> None:
    from relive.record.process import user_warnings

    user_warnings.reset_warnings()
    with pytest.warns(UserWarning, match=r"\[prune-unknown\] this run belongs to no sweep"):
        assert prune_decisions(9.0, tags={}) == [False] * 4


def test_without_recording_nothing_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIVE_OFF", "1")

    assert prune_decisions(9.0) == [False] * 4


def test_without_optuna_the_error_has_the_remedy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)

    with relive.run(), pytest.raises(ReliveError, match=r"pip install 'relive\[optuna\]'"):
        relive.should_prune("val_loss", 0)


def test_a_launcher_may_set_sweep_and_trial(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIVE_SWEEP", "night")
    monkeypatch.setenv("RELIVE_TRIAL", "12")
    with relive.run(tags={"team": "vision"}):
        relive.log("x", 1.0)

    (record,) = records(home)
    assert (record.sweep, record.trial, record.tags["team"]) == ("night", 12, "vision")


def test_a_trial_that_is_no_number_is_a_tag_and_warned_about(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relive.record.process import user_warnings

    user_warnings.reset_warnings()
    monkeypatch.setenv("RELIVE_TRIAL", "v1")
    with pytest.warns(UserWarning, match=r"\[trial-not-a-number\] RELIVE_TRIAL=v1"), relive.run():
        relive.log("x", 1.0)

    (record,) = records(home)
    assert (record.trial, record.tags["trial"]) == (None, "v1")
