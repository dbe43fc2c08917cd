"""How far the ranks of a run are apart: per step the canonical value, mean, lowest, highest, and the skew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relive.errors import QueryError
from relive.store.catalog import Index, Points, RunEntry, as_read, find_run
from relive.store.journal import from_text, plain_number, plain_value, slot_kinds

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The values of one name, a row for each step and a column for each rank, in the order of the canonical rank.

    `there` tells where a rank logged a value; where it did, the value may be NaN.
    """

    run: str
    name: str
    ranks: tuple[int, ...]
    at: tuple[dict[str, Any], ...]  # the loop columns of each step
    value: NDArray[Any]
    there: NDArray[Any]

    @property
    def canonical(self) -> NDArray[Any]:
        """NaN where rank 0 logged nothing."""
        import numpy as np

        return self.value[:, 0] if self.ranks[:1] == (0,) else np.full(len(self.at), np.nan)

    @property
    def has_canonical(self) -> NDArray[Any]:
        import numpy as np

        return self.there[:, 0] if self.ranks[:1] == (0,) else np.zeros(len(self.at), bool)

    @property
    def mean(self) -> NDArray[Any]:
        """Over the ranks that logged the step; NaN if one of them logged NaN."""
        import numpy as np

        with np.errstate(invalid="ignore"):
            total = np.where(self.there, self.value, 0.0).sum(axis=1)
        found: NDArray[Any] = total / np.maximum(self.there.sum(axis=1), 1)
        return found

    @property
    def skew(self) -> NDArray[Any]:
        """|canonical − mean|. NaN when a rank logged NaN, or there is no canonical value."""
        import numpy as np

        with np.errstate(invalid="ignore"):  # infinity less infinity is no number, and says so
            found: NDArray[Any] = np.abs(self.canonical - self.mean)
        return found

    @property
    def worst(self) -> list[int | None]:
        """The rank that is farthest from the median of its step; one that is no number is farther than any."""
        import numpy as np

        finite = self.there & np.isfinite(self.value)
        filled = np.where(finite, self.value, np.nan)
        middle = np.zeros(len(self.at))
        some = finite.any(axis=1)
        middle[some] = np.nanmedian(filled[some], axis=1)
        distance = np.where(finite, np.abs(np.where(finite, self.value, 0.0) - middle[:, None]), np.inf)
        distance[~self.there] = -1.0
        several = self.there.sum(axis=1) > 1
        farthest = np.argmax(distance, axis=1).tolist()
        return [self.ranks[column] if ok else None for column, ok in zip(farthest, several.tolist(), strict=True)]


def spread(index: Index, entry: RunEntry, name: str) -> Spread:
    """The values of a name on all ranks of a run, lined up by the loops they were logged in."""
    import numpy as np

    points = index.points([as_read(index.home, entry)], [name], all_ranks=True)
    if not len(points):
        logged = sorted({one.name for one in index.summaries([entry])[entry.record.run]})
        listed = ", ".join(logged) or "nothing"
        raise QueryError(f"run {entry.record.run[:8]} did not log {name!r}; it logged {listed}")
    is_number = (points.kind != slot_kinds.LINE) & (points.kind != slot_kinds.NONE)
    own = np.flatnonzero((points.process == 0) & is_number)
    ranks = np.unique(points.rank[own])
    step, first = _steps(points, own)
    value = np.full((len(first), len(ranks)), np.nan)
    there = np.zeros_like(value, bool)
    column = np.searchsorted(ranks, points.rank[own])
    value[step, column], there[step, column] = points.value[own], True
    at = tuple(_context(points, int(row)) for row in own[first])
    return Spread(entry.record.run, name, tuple(ranks.tolist()), at, value, there)


def _steps(points: Points, own: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each value its step, and for each step its first value; steps come as the first rank that had them met them.

    A step is an iteration, with all iterations around it; if a name is logged several times in one, also which of them.
    """
    import numpy as np

    context = np.column_stack([points.path[own], points.dims[own]]).astype(np.int64)
    _, where = np.unique(context, axis=0, return_inverse=True)
    where = where.reshape(-1)
    order = np.lexsort([np.arange(len(own)), points.rank[own], where])  # rows of a rank are in its order already
    fresh = np.r_[True, (np.diff(where[order]) != 0) | (np.diff(points.rank[own][order]) != 0)]
    starts = np.flatnonzero(fresh)
    nth = np.arange(len(own)) - np.repeat(starts, np.diff(np.r_[starts, len(own)]))
    occurrence = np.empty(len(own), np.int64)
    occurrence[order] = nth
    _, first, step = np.unique(np.column_stack([where, occurrence]), axis=0, return_index=True, return_inverse=True)
    by_first = np.argsort(first, kind="stable")
    place = np.empty(len(first), np.int64)
    place[by_first] = np.arange(len(first))
    return place[step.reshape(-1)], first[by_first]


def _context(points: Points, row: int) -> dict[str, Any]:
    path = points.paths[int(points.path[row])]
    items = points.items[row] if points.items is not None else None
    shown = plain_value(from_text(items)) if items is not None else {}
    dims = points.dims[row].tolist()
    at: dict[str, Any] = {}
    for depth, loop in enumerate(path):
        nth = path[: depth + 1].count(loop)
        at[loop if nth == 1 else f"{loop}_{nth}"] = shown.get(loop, dims[depth])
    return at


def skew(index: Index, run: str, name: str) -> dict[str, Any]:
    """Both views of a name in a run, step by step, as plain JSON values; NaN and infinity are null."""
    entry = find_run(index.runs(), run)
    return told(spread(index, entry, name), entry.record.world_size)


def told(found: Spread, world_size: int) -> dict[str, Any]:
    """A spread as plain values."""
    lists = (found.canonical, found.mean, *_bounds(found), found.skew, found.there.sum(axis=1))
    columns = [column.tolist() for column in lists]
    steps = [
        {
            "at": at, "canonical": plain_number(canonical), "mean": plain_number(mean), "min": plain_number(low),
            "max": plain_number(high), "skew": plain_number(distance), "ranks": int(count), "worst_rank": worst,
        }
        for at, worst, canonical, mean, low, high, distance, count in zip(found.at, found.worst, *columns, strict=True)
    ]  # fmt: skip
    return {
        "run": found.run, "name": found.name, "ranks": list(found.ranks), "world_size": world_size,
        "missing_ranks": [rank for rank in range(world_size) if rank not in found.ranks],
        "max_skew": _largest(found.skew), "steps": steps,
    }  # fmt: skip


def flat_steps(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a skew as flat rows, the loop columns in front."""
    return [{**step["at"], **{key: step[key] for key in step if key != "at"}} for step in found["steps"]]


def _bounds(found: Spread) -> tuple[NDArray[Any], NDArray[Any]]:
    import numpy as np

    low = np.where(found.there, found.value, np.inf).min(axis=1, initial=np.inf)
    high = np.where(found.there, found.value, -np.inf).max(axis=1, initial=-np.inf)
    return low, high


def _largest(skews: NDArray[Any]) -> float | None:
    import numpy as np

    finite = skews[np.isfinite(skews)]
    return float(finite.max()) if len(finite) else None
