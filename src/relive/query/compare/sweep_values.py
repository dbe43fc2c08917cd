"""The values of a sweep's runs by step, for pruners and search algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relive.model import PRUNED
from relive.query.compare.point_groups import group_starts, main_process_rows, positions_in_group
from relive.store.catalog import Index, Points, RunEntry, bypass_index

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    """The runs of a sweep. Ended runs are read once; live runs each time."""

    def __init__(self, index: Index, sweep: str) -> None:
        self._index = index
        self.sweep = sweep
        self._ended: dict[tuple[str, str], SweepMember] = {}

    def members(self, name: str) -> list[SweepMember]:
        """Returns the runs of the sweep that logged a name, in the order of their start."""
        entries = [entry for entry in self._index.runs() if entry.record.sweep == self.sweep]
        unread = [entry for entry in entries if entry.live or (entry.record.run, name) not in self._ended]
        values = self._values(unread, name)
        members = []
        for entry in entries:
            key = entry.record.run, name
            member = self._ended.get(key) or _make_member(entry, values.get(entry.record.run, {}))
            if not entry.live:
                self._ended[key] = member
            members.append(member)
        return [member for member in members if member.values]

    def _values(self, entries: Sequence[RunEntry], name: str) -> dict[str, dict[int, float]]:
        if not entries:
            return {}
        points = self._index.points([bypass_index(self._index.home, entry) for entry in entries], [name])
        step = point_steps(points)
        found: dict[str, dict[int, float]] = {}
        rows = main_process_rows(points)
        columns = (points.run[rows].tolist(), step[rows].tolist(), points.value[rows].tolist())
        for run, at, value in zip(*columns, strict=True):
            found.setdefault(points.runs[run], {})[at] = value
        return found


def _make_member(entry: RunEntry, values: dict[int, float]) -> SweepMember:
    record = entry.record
    return SweepMember(record.run, record.trial, record.outcome, PRUNED in record.tags, record.data_version, values)


def point_steps(points: Points) -> NDArray[Any]:
    """Returns the step of each value: its loop column if it is in exactly one loop, else its position in its run."""
    import numpy as np

    position = positions_in_group(group_starts(points.run), len(points))
    depth = np.asarray([len(path) for path in points.paths] or [0])[points.path]
    if not points.dims.shape[1]:
        return position
    in_one_loop: NDArray[Any] = np.where(depth == 1, points.dims[:, 0], position)
    return in_one_loop
