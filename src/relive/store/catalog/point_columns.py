"""Converts columns between three forms: a parsed journal, a segment on disk, and the points returned to queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from relive.store.catalog.parquet_segments import TEXTS, Columns, dim_keys
from relive.store.catalog.points import Points
from relive.store.catalog.replay_overlay import ReplayChoice, overlay_replays
from relive.store.catalog.row_seals import refuse
from relive.store.catalog.summaries import read_verdicts

if TYPE_CHECKING:
    from relive.model import RunRecord
    from relive.store.journal import ParsedJournal

Path = tuple[str, ...]
_TYPES = {
    "run": "int32", "name": "int32", "path": "int32", "rank": "int32", "process": "int32", "seq": "int64",
    "time_us": "int64", "loop": "int64", "kind": "uint8", "value": "float64", "exact": "int64", "verdict": "uint8",
}  # fmt: skip


class HasRecord(Protocol):
    """A run of the index: its record, and its id if it is in the catalog."""

    @property
    def record(self) -> RunRecord: ...
    @property
    def number(self) -> int | None: ...


def combine_journals(
    gathered: Sequence[tuple[int, ParsedJournal]], names: dict[str, int], paths: dict[Path, int]
) -> Columns:
    """Returns the columns of a segment from several journals, with the catalog's ids of runs, names and paths."""
    parts = [
        _journal_columns(journal, run, [names[n] for n in journal.names], [paths[p] for p in journal.paths])
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
    choice: ReplayChoice = ReplayChoice(),  # noqa: B008 - frozen
    is_shown: Callable[[str, int], bool] = lambda *_: True,
) -> Points:
    """Merges rows from segments and rows of live journals, in the order of `entries`."""
    names, paths = _Numbering(), _Numbering()
    positions = {entry.number: position for position, entry in enumerate(entries) if entry.number is not None}
    parts = [_renumber_stored(stored, positions, stored_names, stored_paths, names, paths)] if stored else []
    for journal, run in live:
        part = _journal_columns(journal, run, names.number_all(journal.names), paths.number_all(journal.paths))
        if wanted is not None:
            allowed = [names.numbers[name] for name in wanted if name in names.numbers]
            part = _keep_names(part, allowed)
        parts.append(part)
    runs = [entry.record.run for entry in entries]
    columns, left_out = overlay_replays(
        _sort_rows(_stack(parts)), paths.in_order, choice, lambda run, number: is_shown(runs[run], number)
    )
    dims = _stack_dims(columns)
    return Points(
        runs=runs, names=names.in_order, paths=paths.in_order, dims=dims,
        text=columns.get("text"), items=columns.get("items"), replay=columns["replay"],
        left_out={names.in_order[code]: count for code, count in left_out.items()},
        **{key: columns[key] for key in _TYPES if key != "loop"},
    )  # fmt: skip


class _Numbering:
    """Numbers values in the order of their first occurrence."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def number_all(self, values: Sequence[Any]) -> list[int]:
        return [self.numbers.setdefault(value, len(self.numbers)) for value in values]

    @property
    def in_order(self) -> list[Any]:
        return list(self.numbers)


def _journal_columns(journal: ParsedJournal, run: int, names: list[int], paths: list[int]) -> Columns:
    """Returns the columns of a journal, with the given numbers for its run, names and paths."""
    import numpy as np

    rows = len(journal)
    part: Columns = {
        "run": np.full(rows, run), "name": np.asarray(names, np.int64)[journal.name],
        "path": np.asarray(paths, np.int64)[journal.path], "rank": np.full(rows, journal.journal.rank),
        "process": np.full(rows, journal.journal.process), "seq": journal.seq, "time_us": journal.time_us,
        "loop": journal.loop, "kind": journal.kind, "value": journal.value, "exact": journal.exact,
        "verdict": read_verdicts(journal),
    }  # fmt: skip
    for depth in range(journal.dims.shape[1]):
        part[f"d{depth}"] = journal.dims[:, depth]
    for text in TEXTS:
        column = getattr(journal, text)
        if column is not None:
            part[text] = column
    return part


def _renumber_stored(
    stored: Columns, positions: dict[int, int], stored_names: dict[int, str], stored_paths: dict[int, Path],
    names: _Numbering, paths: _Numbering,
) -> Columns:  # fmt: skip
    """Replaces the catalog's ids in columns from segments by positions in the result."""
    part = dict(stored)
    part["run"] = _map_numbers(stored["run"], positions.__getitem__)
    try:
        part["name"] = _map_numbers(stored["name"], lambda number: names.number_all([stored_names[number]])[0])
        part["path"] = _map_numbers(stored["path"], lambda number: paths.number_all([stored_paths[number]])[0])
    except KeyError:
        refuse("a name is missing")
    return part


def _map_numbers(column: Any, number_of: Any) -> Any:
    """Replaces each number of a column through a lookup table, calling `number_of` once per distinct number."""
    import numpy as np

    if not len(column):
        return column.astype(np.int64)
    low = int(column.min())
    present = np.flatnonzero(np.bincount(column - low))
    table = np.zeros(int(present[-1]) + 1, np.int64)
    table[present] = [number_of(int(number) + low) for number in present]
    return table[column - low]


def _keep_names(part: Columns, names: list[int]) -> Columns:
    import numpy as np

    keep = np.isin(part["name"], names)
    return part if keep.all() else {key: column[keep] for key, column in part.items()}


def _stack(parts: Sequence[Columns]) -> Columns:
    """Concatenates parts that may have different columns."""
    import numpy as np

    keys = list(dict.fromkeys([*_TYPES, *(key for part in parts for key in part)]))
    stacked = {key: _concatenate([_column_or_default(part, key) for part in parts], key) for key in keys}
    return {key: np.ascontiguousarray(column) for key, column in stacked.items()}


def _concatenate(columns: list[Any], key: str) -> Any:
    import numpy as np

    kind = object if key in TEXTS else _TYPES.get(key, "int64")
    if not columns:
        return np.empty(0, kind)
    return np.concatenate(columns).astype(kind, copy=False)


def _column_or_default(part: Columns, key: str) -> Any:
    """Returns a column, or one of None or 0 where the part lacks it."""
    import numpy as np

    if key in part:
        return part[key]
    rows = len(part["run"])
    return np.full(rows, None, object) if key in TEXTS else np.zeros(rows, np.int64)


def _sort_rows(columns: Columns) -> Columns:
    """Sorts rows by run, rank, process and sequence number."""
    import numpy as np

    run, rank, process, seq = (columns[key] for key in ("run", "rank", "process", "seq"))
    if rank.any() or process.any():
        order = np.lexsort([seq, process, rank, run])
    else:
        # One combined key: the rows are a few sorted sequences, which a stable sort only has to merge.
        key = (run.astype(np.int64) << 40) | seq
        if (key[1:] > key[:-1]).all():
            return columns
        order = np.argsort(key, kind="stable")
    return {key: column[order] for key, column in columns.items()}


def _stack_dims(columns: Columns) -> Any:
    import numpy as np

    keys = dim_keys(columns)
    if not keys:
        return np.zeros((len(columns["run"]), 0), np.int64)
    return np.column_stack([columns[key] for key in keys])
