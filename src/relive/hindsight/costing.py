"""What replays cost on this machine: measured by those that ran, for the estimates of those to come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from relive.hindsight.executor import Task
from relive.hindsight.job import Report
from relive.hindsight.planner import Costs
from relive.store import Home

_MANY_BYTES = 16 << 20  # smaller restores say nothing about bandwidth
_FASTEST = 2e10


def read_costs(home: Home) -> Costs:
    """What earlier replays in this home measured, or what is usual."""
    with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode((home.path / "costs.json").read_bytes(), type=Costs)
    return Costs()


def learn(home: Home, costs: Costs, tasks: Iterable[Task], loading_s: float | None) -> Costs:
    """Refine the costs by what a replay took; `loading_s` is what its libraries needed, if that was seen."""
    known = replace(costs, loading_s=loading_s or costs.loading_s, replays=costs.replays + 1)
    for task in tasks:
        report = task.report
        if report is None or not report.ok:
            continue
        if report.restores:
            known = _with_restores(known, report)
        if task.modules and task.attempts == 1 and task.before_s > 0 and report.set_up_s:
            known = replace(known, own_share=known.mixed(known.own_share, min(1.0, report.set_up_s / task.before_s)))
        beyond = task.took_s - task.waited_s - report.ran_s
        known = replace(known, worker_s=known.mixed(known.worker_s, min(5.0, max(0.02, beyond))))
    with contextlib.suppress(OSError):  # a home that can't be written to gives the usual estimates
        part = home.path / "costs.json.part"
        part.write_bytes(msgspec.json.encode(known))
        part.rename(home.path / "costs.json")
    return known


def _with_restores(known: Costs, report: Report) -> Costs:
    """A restore of much tells how fast bytes come, one of little how long any takes; the first takes longest."""
    size_bytes, others = report.restored_bytes / report.restores, report.restores - 1
    took_s = (report.restored_s - report.first_restore_s) / others if others else known.restore_s
    if size_bytes > _MANY_BYTES:
        took_s = took_s if others else report.first_restore_s
        speed = size_bytes / max(1e-4, took_s - known.restore_s)
        return replace(known, bytes_per_s=known.mixed(known.bytes_per_s, min(speed, _FASTEST)))
    if others:
        rest = max(0.0005, took_s - size_bytes / known.bytes_per_s)
        known = replace(known, restore_s=known.mixed(known.restore_s, rest))
    more = max(0.0, report.first_restore_s - size_bytes / known.bytes_per_s - known.restore_s)
    return replace(known, first_restore_s=known.mixed(known.first_restore_s, more))
