"""Ray Tune: records each trial as a run of a sweep, and shows schedulers all runs of the sweep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.schedulers import TrialScheduler

from relive.model import PRUNED
from relive.query.compare import SweepValues
from relive.record import OpenRun, Place, open_explicit_run
from relive.record.process import read_launch_context
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import slot_kinds

LOOP = "training_iteration"
# Keys that Tune adds to every result.
_TUNE_KEYS = frozenset(
    "training_iteration time_this_iter_s time_total_s done trial_id experiment_id experiment_tag date timestamp pid "
    "hostname node_ip config time_since_restore iterations_since_restore checkpoint_dir_name should_checkpoint "
    "episodes_total timesteps_total timesteps_since_restore warmup_time".split()
)


class TrialFailed(RuntimeError):
    """The error of a run whose trial Tune reports as failed."""


class ReliveCallback(Callback):  # type: ignore[misc]
    """Records what trials report to Tune: one run per trial, with its config as args.

    With `scheduler`, the scheduler also sees the values of the sweep's other runs in the home, from any process, so
    that its median or rungs are those of the whole sweep; `name` is the metric it compares.

    >>> asha = ASHAScheduler(metric="loss", mode="min")
    >>> RunConfig(callbacks=[ReliveCallback("lr-sweep", scheduler=asha, name="loss")])
    """

    def __init__(
        self, sweep: str, *, scheduler: Any = None, name: str | None = None, home: str | Path | None = None
    ) -> None:
        self._sweep = sweep
        self._scheduler = scheduler
        self._name = name
        self._home = None if home is None else str(home)
        self._reset()

    def _reset(self) -> None:
        self._open: dict[str, _TrialRun] = {}
        self._numbers: dict[str, int] = {}
        self._own_runs: set[str] = set()
        self._passed_steps: dict[str, set[int]] = {}
        self._stopped: set[str] = set()
        self._fleet: SweepValues | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out open runs, which belong to this process; Tune pickles its callbacks."""
        kept = ("_sweep", "_scheduler", "_name", "_home")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    # --- what Tune calls ------------------------------------------------------------------------------------------

    def setup(self, *_args: Any, **_info: Any) -> None:
        self._show_fleet()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **_info: Any) -> None:
        if trial.trial_id in self._open:  # the trial was paused
            return
        number = self._numbers.setdefault(trial.trial_id, len(self._numbers))
        tags = {"sweep": self._sweep, "trial": number, "trial_id": trial.trial_id}
        opened = open_explicit_run(str(trial), tags)
        if opened is not None:
            self._own_runs.add(opened.run)
            self._open[trial.trial_id] = _TrialRun(opened, trial.config)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_info: Any
    ) -> None:
        opened = self._open.get(trial.trial_id)
        if opened is not None:
            opened.report(result)
            opened.is_pruned = self._is_stopped_early(trial, result)
        self._show_fleet()

    def _is_stopped_early(self, trial: Any, result: dict[str, Any]) -> bool:
        """Whether Tune marks a result as the last one although the trial had not reached its end."""
        longest = getattr(self._scheduler, "_max_t", math.inf)  # ASHA ends every trial here
        by_itself = trial.should_stop({**result, "done": False})  # by the user's stopping criteria
        return bool(result.get("done")) and not by_itself and result.get(LOOP, 0) < longest

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_info: Any) -> None:
        self._close(trial, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_info: Any) -> None:
        self._close(trial, TrialFailed(f"trial {trial.trial_id} failed; see {trial.error_file} for the reason"))

    def on_experiment_end(self, trials: list[Any], **_info: Any) -> None:
        for trial in trials:
            self._close(trial, None)

    def _close(self, trial: Any, error: BaseException | None) -> None:
        if (opened := self._open.pop(trial.trial_id, None)) is not None:
            opened.close(error)

    # --- the fleet ------------------------------------------------------------------------------------------------

    def _show_fleet(self) -> None:
        """Passes new values of the sweep's other runs to the scheduler."""
        if self._scheduler is None or self._name is None:
            return
        if self._fleet is None:
            home = Home(Path(self._home)) if self._home is not None else read_launch_context().home
            self._fleet = SweepValues(Index(home), self._sweep)
        for member in self._fleet.members(self._name):
            if member.run in self._own_runs or member.run in self._stopped:
                continue
            is_new = member.run not in self._passed_steps
            passed, remote = self._passed_steps.setdefault(member.run, set()), _RemoteTrial(member.run)
            if is_new:
                self._scheduler.on_trial_add(_NO_CONTROLLER, remote)
            for step in sorted(set(member.values) - passed):
                passed.add(step)
                result = {LOOP: step, self._name: member.values[step]}
                decision = self._scheduler.on_trial_result(_NO_CONTROLLER, remote, result)
                if decision == TrialScheduler.STOP:  # a scheduler must get no results after STOP
                    self._stopped.add(member.run)
                    break


class _TrialRun:
    """The open run of a trial."""

    def __init__(self, opened: OpenRun, config: Mapping[str, Any]) -> None:
        self._opened = opened
        self._recorder = opened.recorder
        for name, value in _flatten(config):
            self._recorder.arg(name, value)
        self._loop = self._recorder.enter_loop(LOOP, self._recorder.root, ())
        self._count = 0
        self.is_pruned = False

    def report(self, result: Mapping[str, Any]) -> None:
        place = Place(self._recorder, self._loop, self._count, self._recorder.root)
        self._recorder.note_item(self._loop, self._count, int(result.get(LOOP, self._count)))
        self._count += 1
        for name, value in _flatten({key: value for key, value in result.items() if key not in _TUNE_KEYS}):
            self._recorder.log(name, value, place)

    def close(self, error: BaseException | None) -> None:
        how = slot_kinds.LEFT_EXHAUSTED if error is None else slot_kinds.LEFT_BY_ERROR
        self._recorder.leave_loop(self._loop, self._count, how)
        if self.is_pruned and error is None:
            self._recorder.tag(PRUNED, {"step": self._count})
        self._opened.close(error)


def _flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


class _RemoteTrial:
    """A run of another process in the form of a trial, with an id, that has ended."""

    status = "TERMINATED"
    config: dict[str, Any] = {}  # noqa: RUF012 - read only

    def __init__(self, run: str) -> None:
        self.trial_id = run

    def __hash__(self) -> int:
        return hash(self.trial_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RemoteTrial) and other.trial_id == self.trial_id


class _NoController:
    """A stand-in for the Tune controller when a result comes from another process: there are no live trials."""

    def get_live_trials(self) -> list[Any]:
        return []


_NO_CONTROLLER = _NoController()
