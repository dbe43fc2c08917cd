"""How replayed values stand among recorded ones: which of several count, and where in the order of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.store.home import REPLAYS, Home, JournalName
from relive.store.journal import Line, first_line

if TYPE_CHECKING:
    from relive.store.catalog.parquet_segments import Columns

LATEST, ALL, NONE = "latest", "all", "none"
REPLAY_CHOICES = (LATEST, ALL, NONE)
_INNER = 1 << 31  # how many iterations of a nested loop have room in one of the loop around it


def replay_header(home: Home, run: str, number: int) -> Line:
    """What a replay says of itself: names, patch, and what became of its checks. Its rank 0 has it for all ranks."""
    return first_line(home.run_folder(run) / JournalName.of_replay(number).stem) or {}


def settle(columns: Columns, paths: list[tuple[str, ...]], which: str) -> Columns:
    """Rows in the order of runs, with replayed ones as if the run itself had logged them then.

    They come with the number of their replay, 0 for what was recorded. Of several replays of one context the latest
    counts, unless all are asked for.
    """
    import numpy as np

    replay = np.where(columns["process"] >= REPLAYS, columns["process"] - REPLAYS, 0)
    columns = {**columns, "replay": replay.astype(np.int32)}
    if not replay.any():
        return columns
    if which == NONE:
        return _taken(columns, replay == 0)
    if which == LATEST:
        columns = _taken(columns, _latest(columns))
    order = np.argsort(_positions(columns, paths), kind="stable")
    settled = _taken(columns, order)
    settled["process"] = np.where(settled["replay"] > 0, 0, settled["process"]).astype(np.int32)
    return settled


def _taken(columns: Columns, rows: Any) -> Columns:
    return {key: column[rows] for key, column in columns.items()}


def _dims(columns: Columns) -> list[str]:
    return sorted((key for key in columns if key[0] == "d" and key[1:].isdecimal()), key=lambda key: int(key[1:]))


def _latest(columns: Columns) -> Any:
    """Which rows count: all that were recorded, and of each context and name those of its last replay."""
    import numpy as np

    keys = [columns[key] for key in ("run", "rank", "name", "path", *_dims(columns))]
    if "items" in columns:
        keys.append(np.unique([text or "" for text in columns["items"]], return_inverse=True)[1])
    replay = columns["replay"]
    order = np.lexsort([replay, *reversed(keys)])
    moved = np.zeros(len(order), bool)
    moved[:1] = True
    for key in keys:
        moved[1:] |= np.diff(key[order]) != 0
    group = np.cumsum(moved) - 1
    newest = np.zeros(int(group[-1]) + 1, replay.dtype)
    np.maximum.at(newest, group, replay[order])
    counts = np.empty(len(order), bool)
    counts[order] = replay[order] == newest[group]
    return counts | (replay == 0)


def _positions(columns: Columns, paths: list[tuple[str, ...]]) -> Any:
    """A number per row to sort by: recorded rows keep their order, a replayed one comes after its own iteration."""
    import numpy as np

    count = len(columns["run"])
    position = np.arange(count, dtype=np.float64)
    replayed = columns["replay"] > 0
    depth = np.asarray([len(path) for path in paths] or [0])[columns["path"]]
    iteration = _iteration(columns, depth)
    for run, rank in np.unique([columns["run"][replayed], columns["rank"][replayed]], axis=1).T:
        is_its = (columns["run"] == run) & (columns["rank"] == rank)
        own = np.flatnonzero(is_its & (columns["process"] == 0))
        new = np.flatnonzero(is_its & replayed)
        if not len(own):
            continue
        inside = own[depth[own] > 0]
        place = np.full(len(new), position[own[-1]])
        if len(inside) and (np.diff(iteration[inside]) >= 0).all():
            at = np.searchsorted(iteration[inside], iteration[new], side="right")
            before = np.where(at > 0, position[inside[np.maximum(at - 1, 0)]], position[inside[0]] - 0.75)
            place = np.where(depth[new] > 0, before, place)
        position[new] = place + 0.5
    return position


def _iteration(columns: Columns, depth: Any) -> Any:
    """Where in the outer two loops a row lies; one outside of nested loops comes after what is in them."""
    import numpy as np

    dims = _dims(columns)
    outer = columns[dims[0]] if dims else np.zeros(len(depth), np.int64)
    inner = columns[dims[1]] if len(dims) > 1 else np.zeros(len(depth), np.int64)
    return outer * _INNER + np.where(depth > 1, np.clip(inner, 0, _INNER - 2), _INNER - 1)
