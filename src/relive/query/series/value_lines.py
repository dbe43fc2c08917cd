"""The numbers of one name on one rank of one run as a line: values with all their x axes, sources and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.query.series.step_axes import RELATIVE, STEP, TIME, LoopLengths, loop_axis, step_axis
from relive.store.catalog import Points
from relive.store.journal import slot_kinds

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class ValueLine:
    """Values in the order of their steps. `axes` has the x of each value by the name of the axis."""

    run: str
    name: str
    rank: int
    value: Array
    axes: Mapping[str, Array]
    replay: Array
    verdict: Array
    texts: int = 0  # how many values aren't numbers

    def __len__(self) -> int:
        return len(self.value)


def split_lines(
    points: Points, lengths: Mapping[str, LoopLengths], started_us: Mapping[str, int]
) -> Iterator[ValueLine]:
    """Yields a line for each run, name and rank of some points."""
    own = np.flatnonzero(points.process == 0)
    order = own[np.lexsort((np.arange(len(own)), points.rank[own], points.name[own], points.run[own]))]
    keys = [column[order] for column in (points.run, points.name, points.rank)]
    if not len(order):
        return
    starts = np.flatnonzero(np.r_[True, np.any([np.diff(key) != 0 for key in keys], axis=0)])
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        rows = order[start:end]
        run = points.runs[int(keys[0][start])]
        yield _line(points, rows, run, lengths.get(run, {}), started_us[run])


def _line(points: Points, rows: Array, run: str, lengths: LoopLengths, started_us: int) -> ValueLine:
    is_number = (points.kind[rows] != slot_kinds.LINE) & (points.kind[rows] != slot_kinds.NONE)
    kept = rows[is_number]
    axes = value_axes(points, kept, lengths)
    time_s = points.time_us[kept] / 1e6
    replay = points.replay[kept] if points.replay is not None else np.zeros(len(kept), np.int32)
    # A replayed value has the time of its replay, which says nothing about when it would have been logged.
    axes[TIME] = np.where(replay > 0, np.nan, time_s)
    axes[RELATIVE] = axes[TIME] - started_us / 1e6
    verdict = points.verdict[kept] if points.verdict is not None else np.zeros(len(kept), np.uint8)
    value = points.value[kept]
    step = axes[STEP]
    if len(step) > 1 and (np.diff(step) < 0).any():
        by_step = np.argsort(step, kind="stable")
        value, replay, verdict = value[by_step], replay[by_step], verdict[by_step]
        axes = {name: axis[by_step] for name, axis in axes.items()}
    first = int(rows[0])
    return ValueLine(
        run, points.names[int(points.name[first])], int(points.rank[first]), value, axes, replay, verdict,
        len(rows) - len(kept),
    )  # fmt: skip


def value_axes(points: Points, rows: Array, lengths: LoopLengths) -> dict[str, Array]:
    """Returns the axes by the loops of the path in which most values were logged.

    A value logged elsewhere takes the x of the value before it.
    """
    if not len(rows):
        return {STEP: np.zeros(0)}
    codes = points.path[rows]
    most = int(np.bincount(codes).argmax())
    path, main = points.paths[most], codes == most
    dims = points.dims[rows[main]]
    found = {STEP: step_axis(path, dims, lengths)}
    for depth, loop in enumerate(path):
        if loop not in (STEP, TIME, RELATIVE):
            found[loop] = loop_axis(path, dims, depth, lengths)
    return found if main.all() else {name: _spread(axis, main) for name, axis in found.items()}


def _spread(axis: Array, main: Array) -> Array:
    before = np.maximum(np.cumsum(main) - 1, 0)
    found: Array = axis[before]
    return found
