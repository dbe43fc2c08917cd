"""How far the ranks of a run diverge: per step the canonical value, mean, min, max, and the skew."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from relive.errors import QueryError
from relive.query.compare.point_groups import group_starts, main_process_rows, positions_in_group
from relive.store.catalog import Index, Points, RunEntry, bypass_index, find_run
from relive.store.journal import finite_or_none, from_json, plain_value, slot_kinds

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_MISSING_RANKS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class RankSpread:
    """The values of one name: a row per step, in the order of the lowest rank that logged it, and a column per rank.

    `logged` says where a rank logged a value; such a value may be NaN.
    """

    run: str
    name: str
    ranks: tuple[int, ...]
    contexts: tuple[dict[str, Any], ...]  # the loop columns of each step
    value: NDArray[Any]
    logged: NDArray[Any]

    def at_row(self, row: int) -> RankSpread:
        """Returns the spread of one step only."""
        rows = slice(row, row + 1)
        return replace(self, contexts=self.contexts[rows], value=self.value[rows], logged=self.logged[rows])

    @property
    def canonical(self) -> NDArray[Any]:
        """The values of rank 0, NaN where it logged nothing."""
        import numpy as np

        return self.value[:, 0] if self.ranks[:1] == (0,) else np.full(len(self.contexts), np.nan)

    @property
    def has_canonical(self) -> NDArray[Any]:
        import numpy as np

        return self.logged[:, 0] if self.ranks[:1] == (0,) else np.zeros(len(self.contexts), bool)

    @property
    def mean(self) -> NDArray[Any]:
        """The mean over the ranks that logged the step; NaN if one of them logged NaN."""
        import numpy as np

        with np.errstate(invalid="ignore"):
            total = np.where(self.logged, self.value, 0.0).sum(axis=1)
        found: NDArray[Any] = total / np.maximum(self.logged.sum(axis=1), 1)
        return found

    @property
    def skew(self) -> NDArray[Any]:
        """|canonical − mean|. NaN when a rank logged NaN, or there is no canonical value."""
        import numpy as np

        with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN, as it should be
            found: NDArray[Any] = np.abs(self.canonical - self.mean)
        return found

    @property
    def worst_ranks(self) -> list[int | None]:
        """For each step the rank that is farthest from the median; NaN and infinities are farther than any number."""
        import numpy as np

        finite = self.logged & np.isfinite(self.value)
        filled = np.where(finite, self.value, np.nan)
        median = np.zeros(len(self.contexts))
        has_finite = finite.any(axis=1)
        median[has_finite] = np.nanmedian(filled[has_finite], axis=1)
        distance = np.where(finite, np.abs(np.where(finite, self.value, 0.0) - median[:, None]), np.inf)
        distance[~self.logged] = -1.0
        is_shared = self.logged.sum(axis=1) > 1
        farthest = np.argmax(distance, axis=1).tolist()
        return [self.ranks[column] if ok else None for column, ok in zip(farthest, is_shared.tolist(), strict=True)]


def measure_spread(index: Index, entry: RunEntry, name: str) -> RankSpread:
    """Returns the values of a name on all ranks of a run, aligned by the loop iterations they were logged in."""
    import numpy as np

    points = index.points([bypass_index(index.home, entry)], [name], all_ranks=True)
    if not len(points):
        names = sorted({one.name for one in index.summaries([entry])[entry.record.run]})
        listed = ", ".join(names) or "nothing"
        raise QueryError(f"run {entry.record.run[:8]} did not log {name!r}; it logged {listed}")
    is_number = (points.kind != slot_kinds.LINE) & (points.kind != slot_kinds.NONE)
    rows = main_process_rows(points)
    own = rows[is_number[rows]]
    ranks = np.unique(points.rank[own])
    step, first = _align_steps(points, own)
    value = np.full((len(first), len(ranks)), np.nan)
    logged = np.zeros_like(value, bool)
    column = np.searchsorted(ranks, points.rank[own])
    value[step, column], logged[step, column] = points.value[own], True
    contexts = tuple(_loop_columns(points, int(row)) for row in own[first])
    return RankSpread(entry.record.run, name, tuple(ranks.tolist()), contexts, value, logged)


def _align_steps(points: Points, own: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the step of each value, and the first value of each step, in the order of the lowest rank that has it.

    A step is an iteration with all its enclosing iterations; if a name is logged several times in one iteration, each
    occurrence is a step of its own.
    """
    import numpy as np

    context = np.column_stack([points.path[own], points.dims[own]]).astype(np.int64)
    _, where = np.unique(context, axis=0, return_inverse=True)
    where = where.reshape(-1)
    order = np.lexsort([np.arange(len(own)), points.rank[own], where])  # rows of a rank are in its order already
    starts = group_starts(where[order], points.rank[own][order])
    occurrence = np.empty(len(own), np.int64)
    occurrence[order] = positions_in_group(starts, len(own))
    _, first, step = np.unique(np.column_stack([where, occurrence]), axis=0, return_index=True, return_inverse=True)
    by_first = np.argsort(first, kind="stable")
    place = np.empty(len(first), np.int64)
    place[by_first] = np.arange(len(first))
    return place[step.reshape(-1)], first[by_first]


def _loop_columns(points: Points, row: int) -> dict[str, Any]:
    path = points.paths[int(points.path[row])]
    items = points.items[row] if points.items is not None else None
    shown = plain_value(from_json(items)) if items is not None else {}
    dims = points.dims[row].tolist()
    at: dict[str, Any] = {}
    for depth, loop in enumerate(path):
        nth = path[: depth + 1].count(loop)
        at[loop if nth == 1 else f"{loop}_{nth}"] = shown.get(loop, dims[depth])
    return at


def rank_skew(index: Index, run: str, name: str) -> dict[str, Any]:
    """Returns the spread of a name over the ranks of a run, step by step, as plain JSON values; NaN becomes null."""
    entry = find_run(index.runs(), run)
    return spread_to_json(measure_spread(index, entry, name), entry.record.world_size)


def spread_to_json(found: RankSpread, world_size: int) -> dict[str, Any]:
    """Returns a spread as plain JSON values."""
    lists = (found.canonical, found.mean, *_min_and_max(found), found.skew, found.logged.sum(axis=1))
    columns = [column.tolist() for column in lists]
    steps = [
        {
            "at": at, "canonical": finite_or_none(canonical), "mean": finite_or_none(mean), "min": finite_or_none(low),
            "max": finite_or_none(high), "skew": finite_or_none(distance), "ranks": int(count), "worst_rank": worst,
        }
        for at, worst, canonical, mean, low, high, distance, count in zip(
            found.contexts, found.worst_ranks, *columns, strict=True
        )
    ]  # fmt: skip
    return {
        "run": found.run, "name": found.name, "ranks": list(found.ranks), "world_size": world_size,
        "missing_ranks": _missing_ranks(found.ranks, world_size),
        "max_skew": _largest_finite(found.skew), "steps": steps,
    }  # fmt: skip


def _missing_ranks(ranks: Collection[int], world_size: int) -> list[int]:
    """Returns the ranks without values, the first ones if there are many: `world_size` is what a run says of itself."""
    there = set(ranks)
    return list(islice((rank for rank in range(world_size) if rank not in there), MAX_MISSING_RANKS))


def skew_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the steps of a skew as flat rows, the loop columns first."""
    return [{**step["at"], **{key: step[key] for key in step if key != "at"}} for step in found["steps"]]


def _min_and_max(found: RankSpread) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np

    low = np.where(found.logged, found.value, np.inf).min(axis=1, initial=np.inf)
    high = np.where(found.logged, found.value, -np.inf).max(axis=1, initial=-np.inf)
    return low, high


def _largest_finite(skews: NDArray[Any]) -> float | None:
    import numpy as np

    finite = skews[np.isfinite(skews)]
    return float(finite.max()) if len(finite) else None
