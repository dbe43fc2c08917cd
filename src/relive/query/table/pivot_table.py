"""Builds the wide table: which columns it has, their names, and the values from logs and args."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.model import Verdict
from relive.query.table import column_types
from relive.query.table.context_rows import ABSENT, Ints, Path, Rows, align_rows, distinct
from relive.query.table.wide_table import Column, Table, present
from relive.store.catalog import Points
from relive.store.journal import decode_or_describe, from_json

FIXED_DIMS = ("project", "run", "tstamp", "version", "filename")
PROCESS_DIMS = ("rank", "process")
_WORDS = column_types.as_objects([*(verdict.word for verdict in Verdict), None])  # the last: no value


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the table contains about a run besides its logged values."""

    run: str
    project: str
    tstamp_us: int
    version: str
    filename: str
    args: Mapping[str, Any]


def pivot(
    points: Points,
    names: Sequence[str],
    runs: Sequence[RunFacts],
    *,
    get_chunk: column_types.GetChunk,
    with_rank: bool = False,
    with_sources: bool = False,
    has_happened: Callable[[str, int], bool] = lambda *_: True,
) -> Table:
    """Returns the wide table of these names over these runs: a column per loop and name, a row per context.

    The column of a name with replayed values has one of verdicts beside it. `has_happened` says by run and number of
    a replay whether its values happened in the run.

    Args are values at the root of their run, unless the run logged the name. A run with none of the names has
    no row; with no names at all, every run has one.
    """
    requested = list(dict.fromkeys(names))
    logged = _LoggedPoints.of(points, requested, runs)
    rows = _add_runs_without_points(logged, requested, runs)
    columns = _fixed_columns(rows, runs)
    if with_rank:
        columns |= {dim: Column(_take_integers(getattr(points, dim), rows.point)) for dim in PROCESS_DIMS}
    for loop in _order_loops(logged.paths):
        column = _loop_column(points, rows.point, loop, get_chunk=get_chunk)
        columns[_free_name(loop.column, "loop_", columns)] = column
    dims = list(columns)
    verdicts: dict[str, str] = {}
    for place, name in enumerate(requested):
        source = rows.source.get(place, np.full(len(rows.run), ABSENT))
        values = column_types.gather(points, source, get_chunk)
        args = {run: facts.args[name] for run, facts in enumerate(runs) if name in facts.args}
        if args:
            values = _with_args(values, args, rows.run, logged.runs_with(place))
        column_name = _free_name(name, "logged_", columns)
        columns[column_name] = values.column()
        if with_sources:
            columns[_free_name(f"{column_name}_source", "logged_", columns)] = _source_column(
                points, source, has_happened
            )
        if (codes := _verdicts_at(points, source)).any():
            verdicts[column_name] = _free_name(f"{column_name}_verdict", "logged_", columns)
            columns[verdicts[column_name]] = Column(_WORDS[np.where(source >= 0, codes, -1)], source >= 0)
    left_out = {name: count for name, count in points.left_out.items() if name in requested}
    return Table(columns, dims, verdicts, left_out)


def _source_column(points: Points, source: Ints, has_happened: Callable[[str, int], bool]) -> Column:
    """Returns a description of where each value comes from: recorded, or a replay with its verdict."""
    replay = points.replay if points.replay is not None else np.zeros(len(points), np.int32)
    replays, codes = _take_integers(replay, source).tolist(), _verdicts_at(points, source).tolist()
    keys = list(zip(_take_integers(points.run, source).tolist(), replays, codes, strict=True))

    def describe(run: int, number: int, code: int) -> str:
        if not number:
            return "recorded"
        is_real = has_happened(points.runs[run], number)
        return f"replay {number}, {Verdict(code).word if is_real else 'never happened'}"

    texts = {key: describe(*key) for key in set(keys)}
    return Column(column_types.as_objects([texts[key] for key in keys]), source >= 0)


def _verdicts_at(points: Points, source: Ints) -> Ints:
    """Returns the verdicts of these points, 0 where there is no point."""
    if points.verdict is None:
        return np.zeros(len(source), np.int64)
    return _take_integers(points.verdict, source)


@dataclass(frozen=True, slots=True, eq=False)
class _LoggedPoints:
    """The points of the requested names, ordered by run; `run` and `name` are positions among those requested."""

    run: NDArray[np.int32]
    name: NDArray[np.int32]
    paths: list[Path]  # of the points, in order of first appearance
    rows: Rows
    row_run: Ints

    @classmethod
    def of(cls, points: Points, requested: Sequence[str], runs: Sequence[RunFacts]) -> _LoggedPoints:
        run = _positions([facts.run for facts in runs], points.runs)[points.run]
        name = _positions(requested, points.names)[points.name]
        at = np.flatnonzero((run >= 0) & (name >= 0))
        if np.any(np.diff(run[at]) < 0):
            at = at[np.argsort(run[at], kind="stable")]
        rows = align_rows(points, at, name[at])
        return cls(run[at], name[at], _distinct_paths(points, at), rows, run[rows.first].astype(np.int64))

    def runs_with(self, name: int) -> set[int]:
        return set(distinct(self.run[self.name == name]))


@dataclass(frozen=True, slots=True, eq=False)
class _TableRows:
    """For each row its run, the first point that made it (ABSENT for a run with args only), and its cells by name."""

    run: Ints
    point: Ints
    source: Mapping[int, Ints]

    def take(self, order: Ints) -> _TableRows:
        source = {name: rows[order] for name, rows in self.source.items()}
        return _TableRows(self.run[order], self.point[order], source)


def _distinct_paths(points: Points, at: Ints) -> list[Path]:
    """Returns the paths of these points, in order of first appearance."""
    first = np.full(len(points.paths), len(at))
    first[points.path[at][::-1]] = np.arange(len(at))[::-1]  # of repeated paths, the last assignment wins
    return [points.paths[place] for place in np.argsort(first, kind="stable") if first[place] < len(at)]


def _positions(requested: Sequence[str], known: Sequence[str]) -> NDArray[np.int32]:
    """Returns the position in `requested` of each known name, or -1."""
    position_of = {name: at for at, name in enumerate(requested)}
    return np.array([position_of.get(name, -1) for name in known] or [-1], dtype=np.int32)


def _add_runs_without_points(logged: _LoggedPoints, requested: Sequence[str], runs: Sequence[RunFacts]) -> _TableRows:
    """Returns the rows of logged values, plus one row per run that has only args among the names (or for no names)."""
    seen = set(distinct(logged.row_run))
    bare = [
        place
        for place, facts in enumerate(runs)
        if place not in seen and (not requested or any(name in facts.args for name in requested))
    ]
    rows = _TableRows(logged.row_run, logged.rows.first, logged.rows.source)
    if not bare:
        return rows
    none = np.full(len(bare), ABSENT)
    source = {name: np.append(place, none) for name, place in rows.source.items()}
    rows = _TableRows(np.append(rows.run, bare).astype(np.int64), np.append(rows.point, none), source)
    return rows.take(np.argsort(rows.run, kind="stable"))


def _fixed_columns(rows: _TableRows, runs: Sequence[RunFacts]) -> dict[str, Column]:
    columns = {}
    for dim in FIXED_DIMS:
        if dim == "tstamp":
            times = np.array([facts.tstamp_us for facts in runs], dtype="datetime64[us]")
            columns[dim] = Column(times[rows.run])
        else:
            levels = column_types.as_objects([getattr(facts, dim) for facts in runs])
            columns[dim] = Column(rows.run, levels=levels)
    return columns


def _take_integers(values: NDArray[Any], point: Ints) -> Ints:
    """Returns the values at these points as integers, 0 where there is no point."""
    if len(values) == 0:
        return np.zeros(len(point), dtype=np.int64)
    return np.where(point >= 0, values[point], 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _LoopColumn:
    """A loop column. A loop nested in another of the same name has a column of its own, numbered `nth`."""

    name: str
    nth: int = 1

    @property
    def column(self) -> str:
        return self.name if self.nth == 1 else f"{self.name}_{self.nth}"

    def level(self, path: Path) -> int:
        """Returns the depth of this loop in the path, or ABSENT."""
        depths = [depth for depth, name in enumerate(path) if name == self.name]
        return depths[self.nth - 1] if len(depths) >= self.nth else ABSENT


def _order_loops(paths: Sequence[Path]) -> list[_LoopColumn]:
    """Returns the loops of all paths, outermost first; where paths disagree, in order of first appearance."""
    outside: dict[_LoopColumn, set[_LoopColumn]] = {}
    for path in paths:
        chain = [_LoopColumn(name, path[: depth + 1].count(name)) for depth, name in enumerate(path)]
        for depth, loop in enumerate(chain):
            outside.setdefault(loop, set()).update(chain[:depth])
    order: list[_LoopColumn] = []
    while outside:
        free = (loop for loop, outer in outside.items() if not outer & outside.keys())
        order.append(next(free, next(iter(outside))))
        del outside[order[-1]]
    return order


def _loop_column(points: Points, point: Ints, loop: _LoopColumn, *, get_chunk: column_types.GetChunk) -> Column:
    level_of = np.array([loop.level(path) for path in points.paths])
    level = np.where(point >= 0, level_of[points.path[point]], ABSENT)
    inside = level >= 0
    values = np.where(inside, points.dims[point, level], 0)
    column = Column(values, None if inside.all() else inside)
    return column if points.items is None else _with_items(column, points.items[point], loop, get_chunk)


def _with_items(column: Column, items: NDArray[Any], loop: _LoopColumn, get_chunk: column_types.GetChunk) -> Column:
    """Returns the column with items that aren't integers in place of their iteration number."""
    inside = np.ones(len(items), dtype=bool) if column.valid is None else column.valid
    known: dict[str, Any] = {}
    found = {}
    for row in np.flatnonzero(inside & present(items)):
        text = items[row]
        if text not in known:
            known[text] = from_json(text)
        if loop.name in known[text]:
            found[row] = decode_or_describe(known[text][loop.name], get_chunk)
    if not found:
        return column
    values = column.array().astype(object)
    values[list(found)] = column_types.as_objects(list(found.values()))
    return replace(column, values=values)


def _with_args(
    values: column_types.Cells, args: Mapping[int, Any], row_run: Ints, logged_in: set[int]
) -> column_types.Cells:
    """Returns the values, with the args (by run) filled in for runs that didn't log the name."""
    place = np.full(max(max(args), int(row_run.max(initial=0))) + 1, ABSENT)
    place[list(args)] = np.arange(len(args))
    place[[run for run in args if run in logged_in]] = ABSENT
    return column_types.overlay(values, column_types.constant(list(args.values()), place[row_run]))


def _free_name(name: str, prefix: str, taken: Container[str]) -> str:
    """Returns a column name that isn't taken: the name itself, then with the prefix, then numbered."""
    if name not in taken:
        return name
    numbered = (f"{prefix}{name}" if nth == 1 else f"{prefix}{name}_{nth}" for nth in range(1, 1 << 20))
    return next(free for free in numbered if free not in taken)
