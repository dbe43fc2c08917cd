"""Which iterations of which runs satisfy a where clause, whether or not anything was logged in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relive.query.sql import Aliases, filter_table
from relive.query.table import RunFacts, pivot
from relive.store.catalog import Points
from relive.store.journal import slot_kinds

HERE = "(here)"  # a synthetic name that each candidate iteration logs; its value is the position of the iteration


@dataclass(frozen=True, slots=True)
class IterationContext:
    """An iteration: its enclosing loops, outermost first, with the item of each."""

    run: str
    path: tuple[str, ...]
    dims: tuple[int, ...]
    items: str | None = None  # JSON of the loop columns whose item isn't an integer


def select_contexts(
    points: Points, names: Sequence[str], facts: Sequence[RunFacts], contexts: Sequence[IterationContext],
    where: str, *, get_chunk: Any, aliases: Aliases = dict,
) -> list[int]:  # fmt: skip
    """Returns the positions of the contexts for which the clause holds, given values of outer and inner contexts."""
    if not contexts:
        return []
    table = pivot(_with_contexts(points, contexts), [*names, HERE], facts, get_chunk=get_chunk)
    kept = filter_table(table, where, aliases)
    column = kept.columns[HERE]
    values = column.values if column.valid is None else column.values[column.valid]
    return sorted({int(value) for value in values if value == value})


def _with_contexts(points: Points, contexts: Sequence[IterationContext]) -> Points:
    """Returns the points with one more point per context, ordered by run as points are."""
    run_of = {run: place for place, run in enumerate(points.runs)}
    paths = list(dict.fromkeys([*points.paths, *(context.path for context in contexts)]))
    path_of = {path: place for place, path in enumerate(paths)}
    count, deepest = len(contexts), max([points.dims.shape[1], *(len(context.dims) for context in contexts)])
    dims = np.zeros((count, deepest), np.int64)
    for row, context in enumerate(contexts):
        dims[row, : len(context.dims)] = context.dims
    padded_dims = np.zeros((len(points), deepest), np.int64)
    padded_dims[:, : points.dims.shape[1]] = points.dims
    last = int(points.seq.max(initial=0)) + 1
    more: dict[str, Any] = {
        "run": [run_of[context.run] for context in contexts], "name": np.full(count, len(points.names)),
        "path": [path_of[context.path] for context in contexts], "rank": np.zeros(count), "process": np.zeros(count),
        "seq": np.arange(count) + last, "time_us": np.zeros(count), "kind": np.full(count, slot_kinds.INT),
        "value": np.arange(count, dtype=np.float64), "exact": np.arange(count),
    }  # fmt: skip
    order = np.argsort(np.concatenate([points.run, np.asarray(more["run"])]), kind="stable")
    columns: dict[str, Any] = {
        key: np.concatenate([getattr(points, key), np.asarray(column, getattr(points, key).dtype)])[order]
        for key, column in more.items()
    }
    items = np.asarray([context.items for context in contexts], object)
    texts: dict[str, Any] = {
        "text": _extend(points.text, np.full(count, None, object), len(points)),
        "items": _extend(points.items, items, len(points)),
    }
    texts = {key: None if found is None else found[order] for key, found in texts.items()}
    joined = np.concatenate([padded_dims, dims])[order]
    return replace(
        points, names=[*points.names, HERE], paths=paths, dims=joined, replay=None, verdict=None, **columns, **texts
    )


def _extend(found: Any, more: Any, count: int) -> Any:
    """Returns a column of texts extended by more; None if there are no texts at all."""
    if found is None and all(text is None for text in more):
        return None
    return np.concatenate([np.full(count, None, object) if found is None else found, more])
