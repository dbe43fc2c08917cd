"""Pruning across a sweep: an Optuna pruner compares a run with the values of the other runs."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.errors import ReliveError
from relive.model import FINISHED, PRUNED, RUNNING
from relive.query.compare import SweepMember, SweepValues, guess_order
from relive.record.process import warn_once
from relive.store import Home
from relive.store.catalog import Index, find_run

if TYPE_CHECKING:
    from relive.record import Driver

# Pruners that depend on the values alone; others, such as successive halving, record state on every call.
_STATELESS_PRUNERS = ("MedianPruner", "PercentilePruner", "ThresholdPruner", "NopPruner", "WilcoxonPruner")


class FleetStudy:
    """An in-memory Optuna study that holds the values of all runs of a sweep, for a pruner to compare with.

    Trials are only added, so that state that the pruner records (the rungs of successive halving) is kept.
    """

    def __init__(self, pruner: Any, order: str) -> None:
        optuna = load_optuna()
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # keeps Optuna from printing to the user's terminal
        try:
            sampler = optuna.samplers.RandomSampler()  # never asked for anything
            direction = "minimize" if order == "min" else "maximize"
            self.study = optuna.create_study(direction=direction, pruner=pruner, sampler=sampler)
        finally:
            optuna.logging.set_verbosity(level)
        self._states = optuna.trial.TrialState
        self._is_stateful = type(pruner).__name__ not in _STATELESS_PRUNERS
        self._trials: dict[str, Any] = {}
        self._reported: dict[str, set[int]] = {}
        self._answers: dict[str, bool] = {}
        self._ended: set[str] = set()

    def add(self, member: SweepMember) -> None:
        """Adds the new values of another run to the study, and its outcome once it has ended."""
        if member.run in self._ended:
            return
        for step in sorted(member.values):
            self._report(member.run, step, member.values[step])
        if member.outcome != RUNNING:
            self._ended.add(member.run)
            self._finish_trial(self._trials[member.run], member)

    def should_prune(self, run: str, values: dict[int, float]) -> bool:
        """Whether the pruner would stop a run with these values."""
        *before, last = sorted(values)
        for step in before:
            self._report(run, step, values[step])
        if last not in self._reported.get(run, ()):  # a stateful pruner must not be asked twice about one step
            self._report(run, last, values[last], ask=True)
        return self._answers.get(run, False)

    def _report(self, run: str, step: int, value: float, *, ask: bool = False) -> None:
        if run not in self._trials:
            self._trials[run], self._reported[run] = self.study.ask(), set()
        if step < 0 or step in self._reported[run]:
            return
        self._reported[run].add(step)
        self._trials[run].report(value, step)
        if ask or self._is_stateful:
            self._answers[run] = bool(self._trials[run].should_prune())

    def _finish_trial(self, trial: Any, member: SweepMember) -> None:
        if member.is_pruned:
            self.study.tell(trial, state=self._states.PRUNED)
        elif member.outcome == FINISHED:
            last = member.values[max(member.values)]
            diverged = math.isnan(last)  # Optuna treats NaN as a failure
            self.study.tell(trial, None if diverged else last, state=self._states.FAIL if diverged else None)
        else:
            self.study.tell(trial, state=self._states.FAIL)


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ReliveError("pruning uses Optuna; install it with `pip install 'relive[optuna]'`") from error
    return optuna


def should_prune(
    driver: Driver, home: Path, name: str, step: int, *, pruner: Any = None, order: str | None = None
) -> bool:
    """Implements `relive.should_prune`; if the sweep can't be read, warns and returns False."""
    load_optuna()
    if not driver.run:
        return False
    try:
        driver.settle_data()
        prunes = _decide(driver.run, home, name, step, pruner, order or guess_order(name))
    except (ReliveError, OSError) as error:
        warn_once("prune-unknown", f"{error}; the run continues")
        return False
    if prunes:
        driver.tag(PRUNED, {"name": name, "step": step})
    return prunes


def _decide(run: str, home: Path, name: str, step: int, pruner: Any, order: str) -> bool:
    watch = _sweep_watch(os.getpid(), home, run)
    own_data, members = watch.members(name)
    own = next((member for member in members if member.run == run), None)
    if own is None:
        raise ReliveError(f"this run has not logged {name!r} yet; log it before should_prune")
    fleet_study = watch.fleet_study(name, pruner, order)
    for member in members:
        if member.run != run and _are_comparable(own_data, member.data_version):
            fleet_study.add(member)
    values = {at: value for at, value in own.values.items() if at <= step}
    return fleet_study.should_prune(run, values) if values else False


def _are_comparable(own: str | None, other: str | None) -> bool:
    """Whether two runs have the same data version; others are never ranked together."""
    return own == other


class _SweepWatch:
    """The state that this process keeps between two calls of `should_prune` for a run."""

    def __init__(self, home: Path, run: str) -> None:
        self._index = Index(Home(home))
        record = find_run(self._index.runs(), run).record
        self._run = run
        if record.sweep is None:
            remedy = "set RELIVE_SWEEP, or open it with relive.run(tags={'sweep': …})"
            raise ReliveError(f"this run belongs to no sweep, so there is nothing to compare it with; {remedy}")
        self._fleet = SweepValues(self._index, record.sweep)
        self._fleet_studies: dict[Any, tuple[Any, FleetStudy]] = {}

    def members(self, name: str) -> tuple[str | None, list[SweepMember]]:
        members = self._fleet.members(name)
        return next((member.data_version for member in members if member.run == self._run), None), members

    def fleet_study(self, name: str, pruner: Any, order: str) -> FleetStudy:
        key = name, order, id(pruner)
        if key not in self._fleet_studies:
            rule = pruner if pruner is not None else load_optuna().pruners.MedianPruner()
            self._fleet_studies[key] = pruner, FleetStudy(rule, order)  # holding the pruner keeps its id unique
        return self._fleet_studies[key][1]


@cache
def _sweep_watch(_pid: int, home: Path, run: str) -> _SweepWatch:
    return _SweepWatch(home, run)
