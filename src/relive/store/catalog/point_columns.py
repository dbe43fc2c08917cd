"""Columns in three forms: of a parsed journal, of a segment on disk, and of the points given to queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from relive.store.catalog.parquet_segments import TEXTS, Columns
from relive.store.catalog.points import Points
from relive.store.catalog.replay_overlay import LATEST, settle
from relive.store.journal import ParsedJournal

if TYPE_CHECKING:
    from relive.model import RunRecord

Path = tuple[str, ...]
_TYPES = {
    "run": "int32", "name": "int32", "path": "int32", "rank": "int32", "process": "int32", "seq": "int64",
    "time_us": "int64", "loop": "int64", "kind": "uint8", "value": "float64", "exact": "int64",
}  # fmt: skip


class HasRecord(Protocol):
    @property
    def record(self) -> RunRecord: ...
    @property
    def number(self) -> int | None: ...


def combine(gathered: Sequence[tuple[int, ParsedJournal]], names: dict[str, int], paths: dict[Path, int]) -> Columns:
    """The columns of a segment from several journals, with the catalog's numbers for runs, names and paths."""
    parts = [
        _numbered(journal, run, [names[n] for n in journal.names], [paths[p] for p in journal.paths])
        for run, journal in gathered
    ]
    return _stack(parts)


def to_points(
    entries: Sequence[HasRecord],
    stored: Columns,
    stored_names: dict[int, str],
    stored_paths: dict[int, Path],
    live: Sequence[tuple[ParsedJournal, int]],
    wanted: Collection[str] | None,
    replays: str = LATEST,
) -> Points:
    """Rows read from segments and rows of live journals as one, in the order of `entries`."""
    names, paths = _NameNumbers(), _NameNumbers()
    positions = {entry.number: position for position, entry in enumerate(entries) if entry.number is not None}
    parts = [_renumbered(stored, positions, stored_names, stored_paths, names, paths)] if stored else []
    for journal, run in live:
        part = _numbered(journal, run, names.all(journal.names), paths.all(journal.paths))
        if wanted is not None:
            allowed = [names.of[name] for name in wanted if name in names.of]
            part = _chosen(part, allowed)
        parts.append(part)
    columns = settle(_in_order(_stack(parts)), paths.listed, replays)
    dims = _dims(columns)
    return Points(
        runs=[entry.record.run for entry in entries], names=names.listed, paths=paths.listed, dims=dims,
        text=columns.get("text"), items=columns.get("items"), replay=columns["replay"],
        **{key: columns[key] for key in _TYPES if key != "loop"},
    )  # fmt: skip


class _NameNumbers:
    """Things numbered in the order they come."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def all(self, things: Sequence[Any]) -> list[int]:
        return [self.of.setdefault(thing, len(self.of)) for thing in things]

    @property
    def listed(self) -> list[Any]:
        return list(self.of)


def _numbered(journal: ParsedJournal, run: int, names: list[int], paths: list[int]) -> Columns:
    import numpy as np

    rows = len(journal)
    part: Columns = {
        "run": np.full(rows, run), "name": np.asarray(names, np.int64)[journal.name],
        "path": np.asarray(paths, np.int64)[journal.path], "rank": np.full(rows, journal.journal.rank),
        "process": np.full(rows, journal.journal.process), "seq": journal.seq, "time_us": journal.time_us,
        "loop": journal.loop, "kind": journal.kind, "value": journal.value, "exact": journal.exact,
    }  # fmt: skip
    for depth in range(journal.dims.shape[1]):
        part[f"d{depth}"] = journal.dims[:, depth]
    for text in TEXTS:
        column = getattr(journal, text)
        if column is not None:
            part[text] = column
    return part


def _renumbered(
    stored: Columns, positions: dict[int, int], stored_names: dict[int, str], stored_paths: dict[int, Path],
    names: _NameNumbers, paths: _NameNumbers,
) -> Columns:  # fmt: skip
    part = dict(stored)
    part["run"] = _mapped(stored["run"], positions.__getitem__)
    part["name"] = _mapped(stored["name"], lambda number: names.all([stored_names[number]])[0])
    part["path"] = _mapped(stored["path"], lambda number: paths.all([stored_paths[number]])[0])
    return part


def _mapped(column: Any, number_of: Any) -> Any:
    """A column of a few distinct numbers, each given another number through a table."""
    import numpy as np

    if not len(column):
        return column.astype(np.int64)
    low = int(column.min())
    present = np.flatnonzero(np.bincount(column - low))
    table = np.zeros(int(present[-1]) + 1, np.int64)
    table[present] = [number_of(int(number) + low) for number in present]
    return table[column - low]


def _chosen(part: Columns, names: list[int]) -> Columns:
    import numpy as np

    keep = np.isin(part["name"], names)
    return part if keep.all() else {key: column[keep] for key, column in part.items()}


def _stack(parts: Sequence[Columns]) -> Columns:
    import numpy as np

    keys = list(dict.fromkeys([*_TYPES, *(key for part in parts for key in part)]))
    stacked = {key: _concatenate([_column(part, key) for part in parts], key) for key in keys}
    return {key: np.ascontiguousarray(column) for key, column in stacked.items()}


def _concatenate(columns: list[Any], key: str) -> Any:
    import numpy as np

    kind = object if key in TEXTS else _TYPES.get(key, "int64")
    if not columns:
        return np.empty(0, kind)
    return np.concatenate(columns).astype(kind, copy=False)


def _column(part: Columns, key: str) -> Any:
    import numpy as np

    if key in part:
        return part[key]
    rows = len(part["run"])
    return np.full(rows, None, object) if key in TEXTS else np.zeros(rows, np.int64)


def _in_order(columns: Columns) -> Columns:
    import numpy as np

    run, rank, process, seq = (columns[key] for key in ("run", "rank", "process", "seq"))
    if rank.any() or process.any():
        order = np.lexsort([seq, process, rank, run])
    else:
        # One key: rows come as stretches that are sorted already, which a stable sort only has to merge.
        key = (run.astype(np.int64) << 40) | seq
        if (key[1:] > key[:-1]).all():
            return columns
        order = np.argsort(key, kind="stable")
    return {key: column[order] for key, column in columns.items()}


def _dims(columns: Columns) -> Any:
    import numpy as np

    depths = sorted(int(key[1:]) for key in columns if key[0] == "d" and key[1:].isdecimal())
    if not depths:
        return np.zeros((len(columns["run"]), 0), np.int64)
    return np.column_stack([columns[f"d{depth}"] for depth in depths])
