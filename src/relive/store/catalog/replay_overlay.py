"""Merges replayed values into recorded ones: which of several replays counts, and where its rows are placed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relive.model import Verdict
from relive.store.catalog.parquet_segments import Columns, dim_keys
from relive.store.home import REPLAY_OFFSET, Home, JournalName, list_journals
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


def list_replays(home: Home, run: str) -> list[dict[str, Any]]:
    """Returns the replays of a run, oldest first: what was asked for, how many values have which verdict, and why."""
    numbers = sorted({name.replay for name, _ in list_journals(home.run_folder(run)) if name.replay})
    headers = [(number, replay_header(home, run, number)) for number in numbers]
    return [
        {
            "replay": number, "names": header.names or [], "verdict": Verdict.of(header.verdict or None).word,
            "verdicts": header.verdicts or {}, "causes": header.causes or [], "resume": header.resume or "",
        }
        for number, header in headers
        if header is not None and has_happened(header)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayChoice:
    """Which replayed values a query includes."""

    which: str = LATEST  # of several replays of a context the one with the best verdict, and of those the latest
    contradicted: bool = False  # also values that the record contradicts


def overlay_replays(
    columns: Columns, paths: list[tuple[str, ...]], choice: ReplayChoice,
    is_shown: Callable[[int, int], bool] = lambda *_: True,
) -> tuple[Columns, dict[int, int]]:  # fmt: skip
    """Places replayed rows where the run itself would have logged them, and adds the column `replay`.

    `replay` is the number of the replay, 0 for recorded rows. Also returns how many contradicted values of each name
    are left out. Of several replays only those count that `is_shown` accepts, by run and number.
    """
    import numpy as np

    replay = np.where(columns["process"] >= REPLAY_OFFSET, columns["process"] - REPLAY_OFFSET, 0)
    columns = {**columns, "replay": replay.astype(np.int32)}
    if not replay.any():
        return columns, {}
    if choice.which == NONE:
        return _select_rows(columns, replay == 0), {}
    if choice.which == LATEST:
        columns = _without_hidden(columns, is_shown)
        if not columns["replay"].any():
            return columns, {}
        columns = _select_rows(columns, _is_best(columns))
    left_out: dict[int, int] = {}
    wrong = columns["verdict"] >= Verdict.CONTRADICTED
    if wrong.any() and not choice.contradicted:
        left_out = dict(
            zip(*(part.tolist() for part in np.unique(columns["name"][wrong], return_counts=True)), strict=True)
        )
        columns = _select_rows(columns, ~wrong)
    order = np.argsort(_sort_positions(columns, paths), kind="stable")
    ordered = _select_rows(columns, order)
    ordered["process"] = np.where(ordered["replay"] > 0, 0, ordered["process"]).astype(np.int32)
    return ordered, left_out


def _without_hidden(columns: Columns, is_shown: Callable[[int, int], bool]) -> Columns:
    import numpy as np

    pairs, where = np.unique([columns["run"], columns["replay"]], axis=1, return_inverse=True)
    shown = np.asarray([not replay or is_shown(run, replay) for run, replay in pairs.T.tolist()], bool)
    return columns if shown.all() else _select_rows(columns, shown[where.ravel()])


def _select_rows(columns: Columns, rows: Any) -> Columns:
    return {key: column[rows] for key, column in columns.items()}


def _is_best(columns: Columns) -> Any:
    """Returns a mask of all recorded rows, and of the rows of the best replay of each context and name.

    The best is the one with the best verdict; of several with the same verdict, the latest.
    """
    import numpy as np

    keys = [columns[key] for key in ("run", "rank", "name", "path", *dim_keys(columns))]
    if "items" in columns:
        keys.append(np.unique([text or "" for text in columns["items"]], return_inverse=True)[1])
    replay = columns["replay"].astype(np.int64)
    # Recorded rows rank lowest: they are kept anyway, and must not outrank a replay.
    rank = np.where(replay > 0, (Verdict.CONTRADICTED + 1 - columns["verdict"].astype(np.int64) << 32) + replay, 0)
    order = np.lexsort([rank, *reversed(keys)])
    starts_group = np.zeros(len(order), bool)
    starts_group[:1] = True
    for key in keys:
        starts_group[1:] |= np.diff(key[order]) != 0
    group = np.cumsum(starts_group) - 1
    best = np.zeros(int(group[-1]) + 1, np.int64)
    np.maximum.at(best, group, rank[order])
    is_best = np.empty(len(order), bool)
    is_best[order] = replay[order] == best[group] & 0xFFFFFFFF
    return is_best | (replay == 0)


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
