"""What replays cost on this machine: measured by those that ran, for the estimates of those to come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from relive.hindsight.executor import Task
from relive.hindsight.planner import Costs
from relive.store import Home

_WEIGHT = 0.5  # of the newest measurement against what was known
_MIN_BYTES = 1 << 20  # smaller restores say nothing about bandwidth


def read_costs(home: Home) -> Costs:
    """What earlier replays in this home measured, or what is usual."""
    with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode((home.path / "costs.json").read_bytes(), type=Costs)
    return Costs()


def learn(home: Home, costs: Costs, tasks: Iterable[Task], set_up_s: float) -> Costs:
    """Refine the costs by what a replay took; `set_up_s` is what its runs needed before their main loop."""
    known = costs
    for task in tasks:
        report = task.report
        if report is None or not report.ok:
            continue
        if report.restored_bytes > _MIN_BYTES and report.restored_s > 0:
            known = replace(known, bytes_per_s=_mixed(known.bytes_per_s, report.restored_bytes / report.restored_s))
        turns = sum(took for _, _, took in report.turns_s)
        beyond = task.took_s - report.set_up_s - turns
        if beyond > 0 and report.set_up_s:
            known = replace(known, worker_s=_mixed(known.worker_s, min(5.0, max(0.02, beyond))))
    with contextlib.suppress(OSError):  # a home that can't be written to gives the usual estimates
        part = home.path / "costs.json.part"
        part.write_bytes(msgspec.json.encode(known))
        part.rename(home.path / "costs.json")
    return known


def _mixed(before: float, now: float) -> float:
    return before * (1 - _WEIGHT) + now * _WEIGHT
