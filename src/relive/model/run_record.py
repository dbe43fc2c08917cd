"""Everything known of a run but its logged values: the record of six fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Everything known of a run but its logged values; the metrics themselves are the journal."""

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
    process: dict[str, Any] = field(default_factory=dict)  # pid, start stamp, host: who to ask whether it lives

    @property
    def version(self) -> str:
        return str(self.code.get("version") or "")

    @property
    def data_version(self) -> str | None:
        return self.data.get("version")

    @property
    def sweep(self) -> str | None:
        """The sweep that the run belongs to, if it was told."""
        told = self.tags.get("sweep")
        return None if told is None else str(told)

    @property
    def trial(self) -> int | None:
        """Its number in that sweep."""
        told = self.tags.get("trial")
        return told if type(told) is int else None

    @property
    def took_s(self) -> float | None:
        return None if self.ended_us is None else (self.ended_us - self.started_us) / 1e6
