"""How a run learns from the others of its sweep whether to go on: their values, judged by a rule of Optuna's."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.errors import ReliveError
from relive.model import FINISHED, RUNNING
from relive.query.compare import PRUNED, SweepMember, SweepValues, told_by_name
from relive.record import Recorder
from relive.record.process import warn_once
from relive.store import Home
from relive.store.catalog import Index, find_run

if TYPE_CHECKING:
    from relive.record import Driver

# Rules that judge by the values alone; others, such as successive halving, note what they saw whenever they are asked.
_WITHOUT_NOTES = ("MedianPruner", "PercentilePruner", "ThresholdPruner", "NopPruner", "WilcoxonPruner")


class Mirror:
    """A study in memory that holds the fleet's values, so that a rule written for studies can judge by them.

    It only grows: what a rule has noted about a run (the rungs of successive halving) stays.
    """

    def __init__(self, pruner: Any, order: str) -> None:
        optuna = load_optuna()
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # the user's terminal is the user's
        try:
            sampler = optuna.samplers.RandomSampler()  # never asked for anything
            direction = "minimize" if order == "min" else "maximize"
            self.study = optuna.create_study(direction=direction, pruner=pruner, sampler=sampler)
        finally:
            optuna.logging.set_verbosity(level)
        self._states = optuna.trial.TrialState
        self._takes_notes = type(pruner).__name__ not in _WITHOUT_NOTES
        self._trials: dict[str, Any] = {}
        self._reported: dict[str, set[int]] = {}
        self._answers: dict[str, bool] = {}
        self._ended: set[str] = set()

    def take_in(self, member: SweepMember) -> None:
        """Tell the study what is new of a run."""
        if member.run in self._ended:
            return
        for step in sorted(member.values):
            self._report(member.run, step, member.values[step])
        if member.outcome != RUNNING:
            self._ended.add(member.run)
            self._tell(self._trials[member.run], member)

    def judges(self, run: str, values: dict[int, float]) -> bool:
        """Would the rule give up the run with these values?"""
        *before, last = sorted(values)
        for step in before:
            self._report(run, step, values[step])
        if last not in self._reported.get(run, ()):  # a rule that takes notes must not be asked twice about one step
            self._report(run, last, values[last], ask=True)
        return self._answers.get(run, False)

    def _report(self, run: str, step: int, value: float, *, ask: bool = False) -> None:
        if run not in self._trials:
            self._trials[run], self._reported[run] = self.study.ask(), set()
        if step < 0 or step in self._reported[run]:
            return
        self._reported[run].add(step)
        self._trials[run].report(value, step)
        if ask or self._takes_notes:
            self._answers[run] = bool(self._trials[run].should_prune())

    def _tell(self, trial: Any, member: SweepMember) -> None:
        if member.is_pruned:
            self.study.tell(trial, state=self._states.PRUNED)
        elif member.outcome == FINISHED:
            last = member.values[max(member.values)]
            diverged = math.isnan(last)  # which Optuna calls a failure
            self.study.tell(trial, None if diverged else last, state=self._states.FAIL if diverged else None)
        else:
            self.study.tell(trial, state=self._states.FAIL)


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ReliveError("pruning uses the rules of Optuna; install it with `pip install 'relive[optuna]'`") from error
    return optuna


def should_prune(
    driver: Driver, home: Path, name: str, step: int, *, pruner: Any = None, order: str | None = None
) -> bool:
    """What `relive.should_prune` answers. Whatever goes wrong with reading the fleet, the run goes on."""
    load_optuna()
    if not isinstance(driver, Recorder):
        return False
    try:
        if driver.provenance is not None:
            driver.provenance.settle()
        gives_up = _judge(driver.run, home, name, step, pruner, order or told_by_name(name))
    except (ReliveError, OSError) as error:
        warn_once("prune-unknown", f"{error}; the run goes on")
        return False
    if gives_up:
        driver.tag(PRUNED, {"name": name, "step": step})
    return gives_up


def _judge(run: str, home: Path, name: str, step: int, pruner: Any, order: str) -> bool:
    watch = _watch(os.getpid(), home, run)
    own_data, members = watch.members(name)
    own = next((member for member in members if member.run == run), None)
    if own is None:
        raise ReliveError(f"this run has not logged {name!r} yet; log it before should_prune")
    mirror = watch.mirror(name, pruner, order)
    for member in members:
        if member.run != run and _comparable(own_data, member.data_version):
            mirror.take_in(member)
    values = {at: value for at, value in own.values.items() if at <= step}
    return mirror.judges(run, values) if values else False


def _comparable(own: str | None, other: str | None) -> bool:
    """Runs that differ in data are never ranked side by side."""
    return own == other


class _Watch:
    """What this process keeps between two questions about its run."""

    def __init__(self, home: Path, run: str) -> None:
        self._index = Index(Home(home))
        record = find_run(self._index.runs(), run).record
        self._run = run
        if record.sweep is None:
            remedy = "set RELIVE_SWEEP, or open it with relive.run(tags={'sweep': …})"
            raise ReliveError(f"this run belongs to no sweep, so there is nothing to compare it with; {remedy}")
        self._fleet = SweepValues(self._index, record.sweep)
        self._mirrors: dict[Any, tuple[Any, Mirror]] = {}

    def members(self, name: str) -> tuple[str | None, list[SweepMember]]:
        members = self._fleet.members(name)
        return next((member.data_version for member in members if member.run == self._run), None), members

    def mirror(self, name: str, pruner: Any, order: str) -> Mirror:
        key = name, order, id(pruner)
        if key not in self._mirrors:
            rule = pruner if pruner is not None else load_optuna().pruners.MedianPruner()
            self._mirrors[key] = pruner, Mirror(rule, order)  # holding the pruner keeps its id its own
        return self._mirrors[key][1]


@cache
def _watch(_pid: int, home: Path, run: str) -> _Watch:
    return _Watch(home, run)
