"""Adds the measurements of a finished replay to the cost model."""

from __future__ import annotations

from collections.abc import Sequence

from relive.hindsight.plan import CostModel, Costs, Pace
from relive.hindsight.workers import Task, WorkerReport
from relive.store import Home

_LARGE_RESTORE_BYTES = 16 << 20  # smaller restores say nothing about bandwidth
_MAX_BYTES_PER_S = 2e10
_MIN_LOADING_S = 0.1  # a worker that waited longer than this waited for libraries
_MIN_SCRIPT_S = 0.25  # a shorter time of the script says nothing about its pace


def record_measurements(home: Home, tasks: Sequence[Task], *, after_s: float, is_shared: bool) -> None:
    """Updates the cost model of a home. `after_s` is the time per run after the workers had ended."""
    model = CostModel.read(home)
    model.add_reading("after_s", after_s)
    for task in tasks:
        if task.is_ok and task.attempts == 1 and task.report is not None:
            _record_start(model, task, task.report)
            _record_script(model, task, task.report, is_shared=is_shared)
    model.write(home)


def _record_script(model: CostModel, task: Task, report: WorkerReport, *, is_shared: bool) -> None:
    runs_to_end = not task.ranks[0].job.stop
    script_s = report.ran_s - report.set_up_s - report.restored_s
    script_s -= task.costs.ending_s if runs_to_end else 0.0
    if runs_to_end and task.script_s < _MIN_SCRIPT_S:
        model.add_reading("ending_s", max(0.0, script_s + task.costs.ending_s - task.script_s))
    if task.script_s > _MIN_SCRIPT_S:
        model.add_pace(Pace(task.run, is_shared, max(0.05, script_s * task.costs.pace / task.script_s)))


def _record_start(model: CostModel, task: Task, report: WorkerReport) -> None:
    process_s, costs = task.took_s - task.waited_s - report.ran_s, task.costs
    if not task.modules:
        model.add_reading("process_s", max(0.02, process_s + report.set_up_s - task.before_s))
        _record_restores(model, report, costs)
        return
    is_first = task.waited_s > _MIN_LOADING_S
    if is_first and model.readings.get("own_share"):
        # Everything is slower while nothing is in the page cache yet; that counts as loading the libraries.
        slower_s = report.set_up_s + report.first_restore_s - costs.own_share * task.before_s - costs.first_restore_s
        model.add_reading("loading_s", task.waited_s + max(0.0, process_s - costs.worker_s) + max(0.0, slower_s))
        return
    if is_first:
        model.add_reading("loading_s", task.waited_s)
    model.add_reading("worker_s", max(0.01, process_s))
    if task.before_s > 0 and report.set_up_s:
        model.add_reading("own_share", min(1.0, report.set_up_s / task.before_s))
    _record_restores(model, report, costs)


def _record_restores(model: CostModel, report: WorkerReport, costs: Costs) -> None:
    """Large restores measure the bandwidth, small ones the fixed cost; the first of a worker is measured apart."""
    if not report.restores:
        return
    size_bytes, others = report.restored_bytes / report.restores, report.restores - 1
    took_s = (report.restored_s - report.first_restore_s) / others if others else costs.restore_s
    if size_bytes > _LARGE_RESTORE_BYTES:
        took_s = took_s if others else report.first_restore_s
        model.add_reading("bytes_per_s", min(size_bytes / max(1e-4, took_s - costs.restore_s), _MAX_BYTES_PER_S))
        return
    if others:
        model.add_reading("restore_s", max(0.0005, took_s - size_bytes / costs.bytes_per_s))
    first_s = report.first_restore_s - size_bytes / costs.bytes_per_s - costs.restore_s
    model.add_reading("first_restore_s", max(0.0, first_s))
