"""The values of the runs of a sweep, step by step, as whoever steers the sweep needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relive.store.catalog import Index, Points, RunEntry, as_read

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRUNED = "pruned"  # the tag of a run that was given up on a rule's advice


@dataclass(frozen=True, slots=True)
class SweepMember:
    """A run of a sweep, and its values by step."""

    run: str
    trial: int | None
    outcome: str
    is_pruned: bool
    data_version: str | None
    values: dict[int, float]


class SweepValues:
    """The runs of a sweep. Those that have ended are read once; those that go on, each time."""

    def __init__(self, index: Index, sweep: str) -> None:
        self._index = index
        self.sweep = sweep
        self._ended: dict[tuple[str, str], SweepMember] = {}

    def members(self, name: str) -> list[SweepMember]:
        """The runs of the sweep that logged a name, in the order of their start."""
        entries = [entry for entry in self._index.runs() if entry.record.sweep == self.sweep]
        fresh = [entry for entry in entries if entry.live or (entry.record.run, name) not in self._ended]
        values = self._values(fresh, name)
        members = []
        for entry in entries:
            key = entry.record.run, name
            member = self._ended.get(key) or _member(entry, values.get(entry.record.run, {}))
            if not entry.live:
                self._ended[key] = member
            members.append(member)
        return [member for member in members if member.values]

    def _values(self, entries: Sequence[RunEntry], name: str) -> dict[str, dict[int, float]]:
        import numpy as np

        if not entries:
            return {}
        points = self._index.points([as_read(self._index.home, entry) for entry in entries], [name])
        step = steps_of(points)
        found: dict[str, dict[int, float]] = {}
        own = np.flatnonzero(points.process == 0)
        columns = (points.run[own].tolist(), step[own].tolist(), points.value[own].tolist())
        for run, at, value in zip(*columns, strict=True):
            found.setdefault(points.runs[run], {})[at] = value
        return found


def _member(entry: RunEntry, values: dict[int, float]) -> SweepMember:
    record = entry.record
    return SweepMember(record.run, record.trial, record.outcome, PRUNED in record.tags, record.data_version, values)


def steps_of(points: Points) -> NDArray[Any]:
    """The step of each value: its loop column if it was logged in one loop, else how many came before it in its run."""
    import numpy as np

    nth = np.arange(len(points))
    if len(points):
        starts = np.flatnonzero(np.r_[True, points.run[1:] != points.run[:-1]])
        nth = nth - np.repeat(starts, np.diff(np.r_[starts, len(points)]))
    depth = np.asarray([len(path) for path in points.paths] or [0])[points.path]
    if not points.dims.shape[1]:
        return nth
    in_one_loop: NDArray[Any] = np.where(depth == 1, points.dims[:, 0], nth)
    return in_one_loop
