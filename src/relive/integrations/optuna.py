"""Optuna: records each trial as a run of a sweep, and lets pruners compare with all runs of the sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from relive.integrations.sweep_pruner import FleetStudy
from relive.model import PRUNED
from relive.query.compare import SweepValues
from relive.record import Driver, current_place, explicit_run
from relive.record.process import read_launch_context
from relive.store import Home
from relive.store.catalog import Index

OBJECTIVE = "objective"


def recorded(objective: Callable[[Trial], Any]) -> Callable[[Trial], Any]:
    """Wraps an objective so that each trial is recorded as a run: sweep, trial number, params as args, and outcome.

    >>> study.optimize(recorded(objective), n_trials=100)
    """

    def as_run(trial: Trial) -> Any:
        pruned: optuna.TrialPruned | None = None
        value = None
        with explicit_run(f"trial {trial.number}", _run_tags(trial.study, trial.number)):
            try:
                value = objective(trial)
            except optuna.TrialPruned as reason:  # pruning is not a failure of the run
                pruned = reason
                _tag_run(PRUNED, {"step": _last_step(trial)})
            finally:
                _record_trial(trial.params, value)
        if pruned is not None:
            raise pruned
        return value

    return as_run


def _run_tags(study: Study, number: int) -> dict[str, Any]:
    return {"sweep": study.study_name, "trial": number}


def _last_step(trial: Trial) -> int | None:
    frozen: FrozenTrial = trial.study.get_trials(deepcopy=False)[trial.number]
    step: int | None = frozen.last_step
    return step


def _tag_run(name: str, value: Any) -> None:
    place = current_place.get()
    if place is not None:
        place.driver.tag(name, value)


def _record_trial(params: dict[str, Any], value: Any) -> None:
    place = current_place.get()
    if place is None:
        return
    for name, given in params.items():
        place.driver.arg(name, given)
    if value is not None:
        place.driver.log(OBJECTIVE, value, place.driver.root)


class ReliveCallback:
    """For `study.optimize(callbacks=[…])`: records each finished trial as a run, with what Optuna knows of it.

    For objectives that can't be wrapped in `recorded`, such as those of another library. The values reported to the
    trial are logged under `name`.
    """

    def __init__(self, name: str = "value") -> None:
        self._name = name

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        with explicit_run(f"trial {trial.number}", _run_tags(study, trial.number)):
            place = current_place.get()
            if place is not None:
                self._log_reports(place.driver, trial)
            value = None
            if trial.state == TrialState.COMPLETE:
                value = trial.values[0] if len(trial.values) == 1 else list(trial.values)
            _record_trial(trial.params, value)
            if trial.state == TrialState.PRUNED:
                _tag_run(PRUNED, {"step": trial.last_step})
            elif trial.state == TrialState.FAIL:
                _tag_run("failed", True)

    def _log_reports(self, driver: Driver, trial: FrozenTrial) -> None:
        for _step in driver.loop("step", sorted(trial.intermediate_values)):
            place = current_place.get()
            if place is not None:
                driver.log(self._name, trial.intermediate_values[_step], place)


class FleetPruner(BasePruner):  # type: ignore[misc]
    """A pruner that compares with every run of the sweep in the home, whichever process or study made it.

    `name` is logged by the runs, in the loop whose items are the steps that trials report; `pruner` is any of Optuna's.

    >>> optuna.create_study(study_name="lr", pruner=FleetPruner("val_loss", optuna.pruners.MedianPruner()))
    """

    def __init__(
        self, name: str, pruner: BasePruner, *, sweep: str | None = None, home: str | Path | None = None
    ) -> None:
        self._name = name
        self._pruner = pruner
        self._sweep = sweep
        self._home = home
        self._fleets: dict[str, tuple[SweepValues, FleetStudy]] = {}

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Called by `trial.should_prune()`."""
        if not trial.intermediate_values:
            return False
        sweep = self._sweep or study.study_name
        fleet, fleet_study = self._open(sweep, study.direction)
        own = _current_run()
        for member in fleet.members(self._name):
            is_own = member.run == own if own is not None else member.trial == trial.number
            if not is_own:
                fleet_study.add(member)
        return fleet_study.should_prune(f"trial {trial.number} of {study.study_name}", trial.intermediate_values)

    def _open(self, sweep: str, direction: StudyDirection) -> tuple[SweepValues, FleetStudy]:
        if sweep not in self._fleets:
            home = Home(Path(self._home)) if self._home is not None else read_launch_context().home
            order = "min" if direction == StudyDirection.MINIMIZE else "max"
            self._fleets[sweep] = SweepValues(Index(home), sweep), FleetStudy(self._pruner, order)
        return self._fleets[sweep]


def _current_run() -> str | None:
    place = current_place.get()
    return place.driver.run or None if place is not None else None
