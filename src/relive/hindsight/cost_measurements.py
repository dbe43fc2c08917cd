"""Measurements of a finished replay, added to the cost model for the next one."""

from __future__ import annotations

from collections.abc import Sequence

from relive.hindsight.plan import CostModel, Costs, Pace
from relive.hindsight.workers import Task, WorkerReport
from relive.store import Home

_MANY_BYTES = 16 << 20  # smaller restores say nothing about bandwidth


_FASTEST = 2e10


_LOADING_S = 0.1  # a worker that waited longer than this waited for libraries


_TELLING_S = 0.25  # of the script; less says nothing about its pace


def learn(home: Home, tasks: Sequence[Task], *, after_s: float, is_shared: bool) -> None:
    """Refine what is known by what a replay took; `after_s` is what came after the workers, for each run."""
    known = CostModel.read(home)
    known.note("after_s", after_s)
    for task in tasks:
        if task.is_ok and task.attempts == 1 and task.report is not None:
            _learn_of(known, task, task.report)
            to_its_end = not task.shares[0].job.stop
            script_s = task.report.ran_s - task.report.set_up_s - task.report.restored_s
            script_s -= task.costs.ending_s if to_its_end else 0.0
            if to_its_end and task.script_s < _TELLING_S:
                known.note("ending_s", max(0.0, script_s + task.costs.ending_s - task.script_s))
            if task.script_s > _TELLING_S:
                known.note_pace(Pace(task.label, is_shared, max(0.05, script_s * task.costs.pace / task.script_s)))
    known.write(home)


def _learn_of(known: CostModel, task: Task, report: WorkerReport) -> None:
    around_s, costs = task.took_s - task.waited_s - report.ran_s, task.costs
    if not task.modules:
        known.note("process_s", max(0.02, around_s + report.set_up_s - task.before_s))
        _learn_restores(known, report, costs)
        return
    is_first = task.waited_s > _LOADING_S
    if is_first and known.readings.get("own_share"):
        # All is slower when nothing of it is in memory yet, and that is part of loading the libraries.
        slower_s = report.set_up_s + report.first_restore_s - costs.own_share * task.before_s - costs.first_restore_s
        known.note("loading_s", task.waited_s + max(0.0, around_s - costs.worker_s) + max(0.0, slower_s))
        return
    if is_first:
        known.note("loading_s", task.waited_s)
    known.note("worker_s", max(0.01, around_s))
    if task.before_s > 0 and report.set_up_s:
        known.note("own_share", min(1.0, report.set_up_s / task.before_s))
    _learn_restores(known, report, costs)


def _learn_restores(known: CostModel, report: WorkerReport, costs: Costs) -> None:
    """A restore of much tells how fast bytes come, one of little how long any takes; the first takes longest."""
    if not report.restores:
        return
    size_bytes, others = report.restored_bytes / report.restores, report.restores - 1
    took_s = (report.restored_s - report.first_restore_s) / others if others else costs.restore_s
    if size_bytes > _MANY_BYTES:
        took_s = took_s if others else report.first_restore_s
        known.note("bytes_per_s", min(size_bytes / max(1e-4, took_s - costs.restore_s), _FASTEST))
        return
    if others:
        known.note("restore_s", max(0.0005, took_s - size_bytes / costs.bytes_per_s))
    known.note("first_restore_s", max(0.0, report.first_restore_s - size_bytes / costs.bytes_per_s - costs.restore_s))
