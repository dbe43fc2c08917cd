"""Merges replayed values into recorded ones: which of several replays counts, and where its rows are placed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relive.store.catalog.parquet_segments import Columns, dim_keys
from relive.store.home import REPLAY_OFFSET, Home, JournalName
from relive.store.journal import first_line, line_schema

LATEST, ALL, NONE = "latest", "all", "none"
REPLAY_CHOICES = (LATEST, ALL, NONE)
_INNER_LIMIT = 1 << 31  # iterations of a nested loop that fit into one iteration of the outer loop, in sort keys


def replay_header(home: Home, run: str, number: int) -> line_schema.ReplayStarted | None:
    """Returns the header of a replay: names, patch, and the result of its checks. Rank 0 stores it for all ranks."""
    header = first_line(home.run_folder(run) / JournalName.of_replay(number).stem)
    return header if isinstance(header, line_schema.ReplayStarted) else None


def has_happened(header: line_schema.JournalStarted | None) -> bool:
    """Whether the values of a journal happened in the run; else they are what it would have logged had it gone on."""
    return not (isinstance(header, line_schema.ReplayStarted) and header.beyond)


def overlay_replays(
    columns: Columns, paths: list[tuple[str, ...]], which: str, is_shown: Callable[[int, int], bool] = lambda *_: True
) -> Columns:
    """Places replayed rows where the run itself would have logged them, and adds the column `replay`.

    `replay` is the number of the replay, 0 for recorded rows. Among several replays of a context only the latest is
    kept, of those that `is_shown` accepts by run and number; if `which` is ALL, all of them.
    """
    import numpy as np

    replay = np.where(columns["process"] >= REPLAY_OFFSET, columns["process"] - REPLAY_OFFSET, 0)
    columns = {**columns, "replay": replay.astype(np.int32)}
    if not replay.any():
        return columns
    if which == NONE:
        return _select_rows(columns, replay == 0)
    if which == LATEST:
        columns = _without_hidden(columns, is_shown)
        if not columns["replay"].any():
            return columns
        columns = _select_rows(columns, _is_latest(columns))
    order = np.argsort(_sort_positions(columns, paths), kind="stable")
    ordered = _select_rows(columns, order)
    ordered["process"] = np.where(ordered["replay"] > 0, 0, ordered["process"]).astype(np.int32)
    return ordered


def _without_hidden(columns: Columns, is_shown: Callable[[int, int], bool]) -> Columns:
    import numpy as np

    pairs, where = np.unique([columns["run"], columns["replay"]], axis=1, return_inverse=True)
    shown = np.asarray([not replay or is_shown(run, replay) for run, replay in pairs.T.tolist()], bool)
    return columns if shown.all() else _select_rows(columns, shown[where.ravel()])


def _select_rows(columns: Columns, rows: Any) -> Columns:
    return {key: column[rows] for key, column in columns.items()}


def _is_latest(columns: Columns) -> Any:
    """Returns a mask of all recorded rows, and of the rows of the latest replay of each context and name."""
    import numpy as np

    keys = [columns[key] for key in ("run", "rank", "name", "path", *dim_keys(columns))]
    if "items" in columns:
        keys.append(np.unique([text or "" for text in columns["items"]], return_inverse=True)[1])
    replay = columns["replay"]
    order = np.lexsort([replay, *reversed(keys)])
    starts_group = np.zeros(len(order), bool)
    starts_group[:1] = True
    for key in keys:
        starts_group[1:] |= np.diff(key[order]) != 0
    group = np.cumsum(starts_group) - 1
    newest = np.zeros(int(group[-1]) + 1, replay.dtype)
    np.maximum.at(newest, group, replay[order])
    is_newest = np.empty(len(order), bool)
    is_newest[order] = replay[order] == newest[group]
    return is_newest | (replay == 0)


def _sort_positions(columns: Columns, paths: list[tuple[str, ...]]) -> Any:
    """Returns sort keys: recorded rows keep their order, a replayed row follows the recorded rows of its iteration."""
    import numpy as np

    count = len(columns["run"])
    position = np.arange(count, dtype=np.float64)
    replayed = columns["replay"] > 0
    depth = np.asarray([len(path) for path in paths] or [0])[columns["path"]]
    iteration = _iteration_order(columns, depth)
    for run, rank in np.unique([columns["run"][replayed], columns["rank"][replayed]], axis=1).T:
        of_rank = (columns["run"] == run) & (columns["rank"] == rank)
        recorded = np.flatnonzero(of_rank & (columns["process"] == 0))
        new = np.flatnonzero(of_rank & replayed)
        if not len(recorded):
            continue
        inside = recorded[depth[recorded] > 0]
        place = np.full(len(new), position[recorded[-1]])
        if len(inside) and (np.diff(iteration[inside]) >= 0).all():
            at = np.searchsorted(iteration[inside], iteration[new], side="right")
            before = np.where(at > 0, position[inside[np.maximum(at - 1, 0)]], position[inside[0]] - 0.75)
            place = np.where(depth[new] > 0, before, place)
        position[new] = place + 0.5
    return position


def _iteration_order(columns: Columns, depth: Any) -> Any:
    """Returns a key that orders rows by the two outer loops; rows outside the inner loop follow those inside it."""
    import numpy as np

    dims = dim_keys(columns)
    outer = columns[dims[0]] if dims else np.zeros(len(depth), np.int64)
    inner = columns[dims[1]] if len(dims) > 1 else np.zeros(len(depth), np.int64)
    return outer * _INNER_LIMIT + np.where(depth > 1, np.clip(inner, 0, _INNER_LIMIT - 2), _INNER_LIMIT - 1)
