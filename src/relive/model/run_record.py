"""The run record: everything known about a run except its logged values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Everything known about a run except its logged values, which are in the journal."""

    run: str
    name: str
    project: str
    started_us: int
    ended_us: int | None
    outcome: str
    error: dict[str, Any] | None  # type, message, place
    filename: str
    parent: str | None
    world_size: int
    ranks: tuple[int, ...]
    tags: dict[str, Any]
    config: dict[str, Any]  # args: {name: {value, default, origin}}, argv
    code: dict[str, Any]  # version, head, branch, dirty, script, module, …
    data: dict[str, Any]  # version, declared: {name: fingerprint}, read: [{path, …}]
    environment: dict[str, Any]
    artifacts: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()  # what of the run is known to be lost, and why
    process: dict[str, Any] = field(default_factory=dict)  # pid, start time and host, to check whether it is alive

    @property
    def version(self) -> str:
        return str(self.code.get("version") or "")

    @property
    def data_version(self) -> str | None:
        return self.data.get("version")

    @property
    def sweep(self) -> str | None:
        """The sweep that the run belongs to, if it is tagged with one."""
        sweep = self.tags.get("sweep")
        return None if sweep is None else str(sweep)

    @property
    def trial(self) -> int | None:
        """The number of the run in its sweep."""
        trial = self.tags.get("trial")
        return trial if type(trial) is int else None

    @property
    def took_s(self) -> float | None:
        return None if self.ended_us is None else (self.ended_us - self.started_us) / 1e6
