"""What differed before two runs began to train: code, args, data, environment, machine, launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relive.hindsight.divergence.run_trace import RankTrace
from relive.model import RunRecord
from relive.query.compare import diff_runs
from relive.store.catalog import Index
from relive.store.journal import line_schema

_HARDWARE = {"cpu": "CPU", "cpus_usable": "processors", "platform": "platform", "hostname": "host"}
_OF_LAUNCH = ("MASTER_", "SLURM_", "RELIVE_", "TORCHELASTIC_", "RANK", "LOCAL_", "GROUP_", "ROLE_", "NCCL_ASYNC")
MAX_FILES = 10


@dataclass(slots=True)
class RunDifferences:
    """What was recorded about two runs and is not the same, as texts."""

    code: list[str] = field(default_factory=list)  # files
    args: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)  # Python, packages, devices
    machine: list[str] = field(default_factory=list)
    launch: list[str] = field(default_factory=list)  # variables, threads, ranks
    unknown: list[str] = field(default_factory=list)  # what one of the runs did not record

    @property
    def is_none(self) -> bool:
        return not any((self.code, self.args, self.data, self.environment, self.machine, self.launch))


def differences_of_runs(
    index: Index, one: RunRecord, other: RunRecord, traces: tuple[RankTrace, RankTrace]
) -> RunDifferences:
    """Compares what was recorded about two runs besides their course."""
    found = diff_runs(index, one.run, other.run)
    result = RunDifferences(
        code=changed_files(found["code"] or ""),
        args={row["name"]: (row["values"][0], row["values"][1]) for row in found["args"]},
        data=list(found["data"]), environment=list(found["environment"]),
    )  # fmt: skip
    scripts = [str(record.code.get("module") or record.filename) for record in (one, other)]
    if scripts[0] != scripts[1]:
        result.code.insert(0, f"{scripts[1]} instead of {scripts[0]}")
    if found["code"] is None:
        result.unknown.append("code: one of the runs has no code version")
    if not (one.environment.get("packages") and other.environment.get("packages")):
        result.unknown.append("packages: one of the runs did not record them")
    if not (one.data_version and other.data_version):
        result.unknown.append("data: none was declared, or seen to be read")
    if one.world_size != other.world_size:
        result.launch.append(_changed("ranks", one.world_size, other.world_size))
    result.machine, launch = _machine_and_launch(one.environment, other.environment)
    result.launch += launch + _threads(*traces)
    return result


def differences_of_ranks(one: RankTrace, other: RankTrace) -> RunDifferences:
    """Compares where and how two ranks of one run were started."""
    machine, launch = _machine_and_launch(*(_rank_environment(trace) for trace in (one, other)))
    return RunDifferences(machine=machine, launch=launch + _threads(one, other))


def changed_files(diff: str) -> list[str]:
    """Returns the files that a unified diff changes."""
    names = [line.partition(" b/")[2] for line in diff.splitlines() if line.startswith("diff --git ")]
    return names[:MAX_FILES] + ([f"{len(names) - MAX_FILES} more"] if len(names) > MAX_FILES else [])


def _rank_environment(trace: RankTrace) -> Mapping[str, Any]:
    header = trace.journal.header
    found = header.environment if isinstance(header, line_schema.RunStarted) else None
    return found or {}


def _machine_and_launch(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    machine = [
        _changed(name, one[key], other[key])
        for key, name in _HARDWARE.items()
        if key in one and key in other and one[key] != other[key]
    ]
    first, second = one.get("variables") or {}, other.get("variables") or {}
    launch = [
        _changed(name, first.get(name, "not set"), second.get(name, "not set"))
        for name in sorted({*first, *second})
        if first.get(name) != second.get(name) and not name.startswith(_OF_LAUNCH)
    ]
    return machine, launch


def _threads(one: RankTrace, other: RankTrace) -> list[str]:
    is_changed = one.threads and other.threads and one.threads != other.threads
    return [_changed("threads", one.threads, other.threads)] if is_changed else []


def _changed(name: str, one: Any, other: Any) -> str:
    return f"{name} {other} instead of {one}"
