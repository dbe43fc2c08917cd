"""Where a value lies on an x axis: the step, an iteration of any loop around it, or a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP, TIME, RELATIVE = "step", "time", "relative"
LoopLengths = Mapping[tuple[tuple[str, ...], tuple[int, ...]], int]  # path, enclosing iterations → iterations
Array = NDArray[Any]


def step_axis(path: tuple[str, ...], dims: Array, lengths: LoopLengths) -> Array:
    """Returns the iteration of the innermost loop, counted through all its executions; the position outside of loops.

    If the loop's own items never go back (a global step, say), they are the steps.
    """
    if not path:
        return np.arange(len(dims), dtype=np.float64)
    inner = dims[:, len(path) - 1]
    if len(path) == 1 or len(inner) < 2 or (np.diff(inner) >= 0).all():
        return inner.astype(np.float64)
    return (_offsets(path, dims[:, : len(path) - 1], inner, lengths) + inner).astype(np.float64)


def _offsets(path: tuple[str, ...], outer: Array, inner: Array, lengths: LoopLengths) -> Array:
    """Returns for each row the iterations of the executions of its loop before the one that it belongs to."""
    around, which = np.unique(outer, axis=0, return_inverse=True)
    which = which.reshape(-1)
    longest = np.zeros(len(around), np.int64)
    np.maximum.at(longest, which, inner + 1)
    known = {key[1]: count for key, count in lengths.items() if key[0] == path}
    usual = max([*known.values(), int(longest.max())])
    missing = _executions_between(around, known)
    counts = [known.get(tuple(row), usual) for row in around.tolist()]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) + missing
    found: Array = starts[which]
    return found


def _executions_between(around: Array, known: Mapping[tuple[int, ...], int]) -> Array:
    """Returns for each execution the iterations of earlier ones in which nothing was logged."""
    rows = [tuple(row) for row in around.tolist()]
    there = set(rows)
    silent = sorted((key, count) for key, count in known.items() if key not in there and len(key) == around.shape[1])
    if not silent:
        return np.zeros(len(rows), np.int64)
    totals = np.cumsum([count for _, count in silent])
    found = np.zeros(len(rows), np.int64)
    at = 0
    for position, row in enumerate(rows):
        while at < len(silent) and silent[at][0] < row:
            at += 1
        found[position] = totals[at - 1] if at else 0
    return found


def loop_axis(path: tuple[str, ...], dims: Array, depth: int, lengths: LoopLengths) -> Array:
    """Returns the iteration of the loop at this depth; values inside deeper loops lie between two iterations."""
    base = step_axis(path[: depth + 1], dims[:, : depth + 1], lengths)
    if depth + 1 == len(path) or not len(base):
        return base
    starts = np.flatnonzero(np.r_[True, np.diff(base) != 0])
    ends = np.r_[starts[1:], len(base)]
    counts = np.repeat(ends - starts, ends - starts)
    place = np.arange(len(base)) - np.repeat(starts, ends - starts)
    found: Array = base + place / counts
    return found
