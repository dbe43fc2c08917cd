"""Which columns the wide table has, what they are called, and what each run and its args put into them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.query.table import column_types
from relive.query.table.context_rows import ABSENT, Ints, Path, Rows, distinct, line_up
from relive.query.table.wide_table import Column, Table, present
from relive.store.catalog import Points
from relive.store.journal import decode_value, from_text

FIXED_DIMS = ("project", "run", "tstamp", "version", "filename")
PROCESS_DIMS = ("rank", "process")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the table says about a run besides what it logged."""

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
    sources: Callable[[str, int], str] | None = None,
) -> Table:
    """The wide table of these names over these runs: a column for each loop and name, a row for each context.

    Args are values at the root of their run, unless the run logged the name. A run with none of the names has
    no row; with no names at all, every run has one.
    """
    wanted = list(dict.fromkeys(names))
    logged = _Logged.of(points, wanted, runs)
    rows = _with_bare_runs(logged, wanted, runs)
    columns = _fixed_columns(rows, runs)
    if with_rank:
        columns |= {dim: Column(_pick(getattr(points, dim), rows.point)) for dim in PROCESS_DIMS}
    for loop in _loops(logged.paths):
        column = _loop_column(points, rows.point, loop, get_chunk=get_chunk)
        columns[_free(loop.column, "loop_", columns)] = column
    dims = list(columns)
    for place, name in enumerate(wanted):
        source = rows.source.get(place, np.full(len(rows.run), ABSENT))
        values = column_types.gather(points, source, get_chunk)
        args = {run: facts.args[name] for run, facts in enumerate(runs) if name in facts.args}
        if args:
            values = _with_args(values, args, rows.run, logged.runs_with(place))
        called = _free(name, "logged_", columns)
        columns[called] = values.column()
        if sources is not None:
            columns[_free(f"{called}_source", "logged_", columns)] = _source_column(points, rows, source, sources)
    return Table(columns, dims)


def _source_column(points: Points, rows: _TableRows, source: Ints, told: Callable[[str, int], str]) -> Column:
    """For each value in words where it comes from: recorded, or a replay and what became of its checks."""
    replay = points.replay if points.replay is not None else np.zeros(len(points), np.int32)
    pairs = list(zip(rows.run.tolist(), _pick(replay, source).tolist(), strict=True))
    texts = {pair: told(points.runs[pair[0]], pair[1]) for pair in set(pairs)}
    return Column(column_types.as_objects([texts[pair] for pair in pairs]), source >= 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Logged:
    """The wanted points, in the order of the runs; `run` and `name` are positions in what was asked for."""

    run: NDArray[np.int32]
    name: NDArray[np.int32]
    paths: list[Path]  # of the points, as they were first seen
    rows: Rows
    row_run: Ints

    @classmethod
    def of(cls, points: Points, wanted: Sequence[str], runs: Sequence[RunFacts]) -> _Logged:
        run = _places([facts.run for facts in runs], points.runs)[points.run]
        name = _places(wanted, points.names)[points.name]
        at = np.flatnonzero((run >= 0) & (name >= 0))
        if np.any(np.diff(run[at]) < 0):
            at = at[np.argsort(run[at], kind="stable")]
        rows = line_up(points, at, name[at])
        return cls(run[at], name[at], _seen_paths(points, at), rows, run[rows.first].astype(np.int64))

    def runs_with(self, name: int) -> set[int]:
        return set(distinct(self.run[self.name == name]))


@dataclass(frozen=True, slots=True, eq=False)
class _TableRows:
    """For each row its run, the first point that made it (ABSENT for a run with args only), and its values."""

    run: Ints
    point: Ints
    source: Mapping[int, Ints]

    def take(self, order: Ints) -> _TableRows:
        source = {name: rows[order] for name, rows in self.source.items()}
        return _TableRows(self.run[order], self.point[order], source)


def _seen_paths(points: Points, at: Ints) -> list[Path]:
    """The paths of these points, as they were first seen."""
    first = np.full(len(points.paths), len(at))
    first[points.path[at][::-1]] = np.arange(len(at))[::-1]  # of many, the last one written stays
    return [points.paths[place] for place in np.argsort(first, kind="stable") if first[place] < len(at)]


def _places(asked: Sequence[str], known: Sequence[str]) -> NDArray[np.int32]:
    """The position in `asked` of each known word, or -1."""
    place_of = {word: place for place, word in enumerate(asked)}
    return np.array([place_of.get(word, -1) for word in known] or [-1], dtype=np.int32)


def _with_bare_runs(logged: _Logged, wanted: Sequence[str], runs: Sequence[RunFacts]) -> _TableRows:
    """The rows of what was logged, and one for each run that only has args among the names (or for no names)."""
    seen = set(distinct(logged.row_run))
    bare = [
        place
        for place, facts in enumerate(runs)
        if place not in seen and (not wanted or any(name in facts.args for name in wanted))
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


def _pick(values: NDArray[Any], point: Ints) -> Ints:
    """The values at these points as integers, 0 where there is no point."""
    if len(values) == 0:
        return np.zeros(len(point), dtype=np.int64)
    return np.where(point >= 0, values[point], 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop column. A loop nested in one of the same name has a column of its own, numbered `nth`."""

    name: str
    nth: int = 1

    @property
    def column(self) -> str:
        return self.name if self.nth == 1 else f"{self.name}_{self.nth}"

    def level(self, path: Path) -> int:
        """How deep in the path this loop is, or ABSENT."""
        depths = [depth for depth, name in enumerate(path) if name == self.name]
        return depths[self.nth - 1] if len(depths) >= self.nth else ABSENT


def _loops(paths: Sequence[Path]) -> list[_Loop]:
    """The loops of all paths, outermost first; where paths disagree, as first seen."""
    outside: dict[_Loop, set[_Loop]] = {}
    for path in paths:
        chain = [_Loop(name, path[: depth + 1].count(name)) for depth, name in enumerate(path)]
        for depth, loop in enumerate(chain):
            outside.setdefault(loop, set()).update(chain[:depth])
    order: list[_Loop] = []
    while outside:
        free = (loop for loop, outer in outside.items() if not outer & outside.keys())
        order.append(next(free, next(iter(outside))))
        del outside[order[-1]]
    return order


def _loop_column(points: Points, point: Ints, loop: _Loop, *, get_chunk: column_types.GetChunk) -> Column:
    level_of = np.array([loop.level(path) for path in points.paths])
    level = np.where(point >= 0, level_of[points.path[point]], ABSENT)
    inside = level >= 0
    values = np.where(inside, points.dims[point, level], 0)
    column = Column(values, None if inside.all() else inside)
    return column if points.items is None else _with_items(column, points.items[point], loop, get_chunk)


def _with_items(column: Column, items: NDArray[Any], loop: _Loop, get_chunk: column_types.GetChunk) -> Column:
    """The column with the items that aren't integers in place of their number."""
    inside = np.ones(len(items), dtype=bool) if column.valid is None else column.valid
    known: dict[str, Any] = {}
    found = {}
    for row in np.flatnonzero(inside & present(items)):
        text = items[row]
        if text not in known:
            known[text] = from_text(text)
        if loop.name in known[text]:
            found[row] = decode_value(known[text][loop.name], get_chunk)
    if not found:
        return column
    values = column.array().astype(object)
    values[list(found)] = column_types.as_objects(list(found.values()))
    return replace(column, values=values)


def _with_args(
    values: column_types.Cells, args: Mapping[int, Any], row_run: Ints, logged_in: set[int]
) -> column_types.Cells:
    """The values with the args (by run) on the rows of those runs that didn't log the name."""
    place = np.full(max(max(args), int(row_run.max(initial=0))) + 1, ABSENT)
    place[list(args)] = np.arange(len(args))
    place[[run for run in args if run in logged_in]] = ABSENT
    return column_types.overlay(values, column_types.constant(list(args.values()), place[row_run]))


def _free(name: str, prefix: str, taken: Container[str]) -> str:
    """A column name that isn't taken: the name itself, then with the prefix, then numbered."""
    if name not in taken:
        return name
    numbered = (f"{prefix}{name}" if nth == 1 else f"{prefix}{name}_{nth}" for nth in range(1, 1 << 20))
    return next(free for free in numbered if free not in taken)
