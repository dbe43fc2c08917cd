"""Curves for charts: the values of some names of some runs, in as many buckets as a chart has pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.errors import QueryError
from relive.model import Verdict
from relive.query.series.lossless_json import null_if_nan, wire_floats
from relive.query.series.pyramids import (
    LONG,
    Buckets,
    PyramidHead,
    pyramid_levels,
    pyramid_path,
    raw_buckets,
    read_pyramid,
)
from relive.query.series.step_axes import STEP, LoopLengths
from relive.query.series.value_lines import ValueLine, split_lines
from relive.store.catalog import Index, RunEntry
from relive.store.journal import from_json

MAX_POINTS = 2_000_000
MAX_MARKS = 1_000  # non-finite values and replayed stretches of one series
BATCH_POINTS = 400_000  # read at a time, which bounds memory
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class SeriesTerms:
    """Which curves are asked for, and in what resolution."""

    runs: tuple[str, ...]
    names: tuple[str, ...]
    pixels: int
    x: str = STEP
    start: float | None = None  # of the window on the x axis; None means the first value
    end: float | None = None
    rank: int = 0
    all_ranks: bool = False
    envelopes: bool = True  # whether the lowest and the highest of each bucket are wanted


def read_series(index: Index, terms: SeriesTerms) -> dict[str, Any]:
    """Returns the curves, and what was left out with the reason."""
    asked = len(terms.runs) * len(terms.names) * terms.pixels
    if asked > MAX_POINTS:
        raise QueryError(
            f"{len(terms.runs)} runs × {len(terms.names)} names × {terms.pixels} pixels are {asked} points, more than "
            f"{MAX_POINTS}; ask for fewer runs, names or pixels at once"
        )
    wanted = set(terms.runs)
    entries = [entry for entry in index.runs() if entry.record.run in wanted]
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    rest: list[RunEntry] = []
    for entry in entries:
        names = [name for name in terms.names if not _from_pyramid(index, entry, name, terms, found)]
        if names:
            rest.append(entry)
    for line in read_lines(index, rest, terms.names, all_ranks=terms.all_ranks or terms.rank > 0):
        if (terms.all_ranks or line.rank == terms.rank) and (line.run, line.name, line.rank) not in found:
            found[line.run, line.name, line.rank] = _line_json(line, terms)
    order = {run: at for at, run in enumerate(terms.runs)}
    ordered = sorted(found, key=lambda key: (terms.names.index(key[1]), order[key[0]], key[2]))
    missing = sorted(wanted - {entry.record.run for entry in entries}, key=terms.runs.index)
    return {"x": terms.x, "series": [found[key] for key in ordered], "missing": missing[:MAX_MARKS]}


def read_lines(
    index: Index, entries: Sequence[RunEntry], names: Sequence[str], *, all_ranks: bool = False
) -> Iterator[ValueLine]:
    """Yields the lines of some names of some runs, a few runs at a time."""
    for batch in _batches(index, entries, names):
        points = index.points(batch, names, all_ranks=all_ranks)
        nested = [entry for entry in batch if any(len(path) > 1 for path in points.paths)]
        lengths = loop_lengths(index, nested) if nested else {}
        yield from split_lines(points, lengths, {entry.record.run: entry.record.started_us for entry in batch})


def _batches(index: Index, entries: Sequence[RunEntry], names: Sequence[str]) -> Iterator[list[RunEntry]]:
    counts = {
        run: sum(one.count for one in found)
        for part in range(0, len(entries), 100)
        for run, found in index.summaries(entries[part : part + 100], names).items()
    }
    batch: list[RunEntry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += counts.get(entry.record.run, 0)
        if size >= BATCH_POINTS or len(batch) >= 200:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def loop_lengths(index: Index, entries: Sequence[RunEntry]) -> dict[str, LoopLengths]:
    """Returns run → (path, enclosing iterations) → how many iterations that execution of a loop had."""
    found: dict[str, dict[tuple[tuple[str, ...], tuple[int, ...]], int]] = {}
    for run, rank, process, _loop, _name, _parent, _at, path, around, _begun, _ended, iterations in index.loops(
        entries
    ):
        if not rank and not process and iterations is not None:
            names = tuple(from_json(path)) if isinstance(path, str) else tuple(path)
            dims = tuple(from_json(around)) if isinstance(around, str) else tuple(around)
            of_run = found.setdefault(run, {})
            of_run[names, dims] = of_run.get((names, dims), 0) + iterations
    return dict(found)


# --- pyramids ---------------------------------------------------------------------------------------------------------


def run_stamp(index: Index, run: str) -> int:
    """Returns what changes when the journals of a run get a new one, by a replay say."""
    return index.home.run_folder(run).stat().st_mtime_ns


def _from_pyramid(
    index: Index, entry: RunEntry, name: str, terms: SeriesTerms, found: dict[tuple[str, str, int], dict[str, Any]]
) -> bool:
    """Adds the curve if the pyramid of the line has it finely enough."""
    run = entry.record.run
    if entry.live or terms.all_ranks:
        return False
    read = read_pyramid(pyramid_path(index.home.index, run, name, terms.rank), run_stamp(index, run))
    if read is None or terms.x not in read[0].axes:
        return False
    head, levels = read
    window = _window(levels[0], terms)
    if len(window) < terms.pixels // 2 and len(window) < len(levels[0]):
        return False  # zoomed in so far that single values are wanted
    key = run, name, terms.rank
    found[key] = _curve_json(key, head.count, head.texts, _fit(window, terms.pixels), terms) | {
        "nonfinite": [
            {"x": at[head.axes.index(terms.x)], "kind": kind}
            for kind, places in head.nonfinite.items()
            for at in places
            if _is_inside(at[head.axes.index(terms.x)], terms)
        ][:MAX_MARKS],
        "sources": _pyramid_sources(head, levels[0], terms),
    }
    return True


def make_pyramid(line: ValueLine, stamp: int) -> tuple[PyramidHead, list[Buckets]] | None:
    """Returns the pyramid of a line that is long enough to need one."""
    if len(line) < LONG:
        return None
    axes = list(line.axes)
    levels = pyramid_levels(raw_buckets(line.axes, line.value))
    marks: dict[str, list[list[float]]] = {}
    for row in np.flatnonzero(~np.isfinite(line.value))[:MAX_MARKS].tolist():
        at = [float(line.axes[name][row]) for name in axes]
        if all(np.isfinite(at)):
            marks.setdefault(_kind(line.value[row]), []).append(at)
    sources = [[float(a), float(b), float(r), float(v)] for a, b, r, v in _stretches(line)]
    head = PyramidHead(1, stamp, len(line), line.texts, axes, [len(level) for level in levels], marks, sources)
    return head, levels


def _pyramid_sources(head: PyramidHead, finest: Buckets, terms: SeriesTerms) -> list[dict[str, Any]]:
    axis = finest.axes[terms.x]
    per_bucket = max(head.count / max(len(finest), 1), 1)
    return [
        {
            "from": float(axis[min(int(first / per_bucket), len(axis) - 1)]),
            "to": float(axis[min(int(last / per_bucket), len(axis) - 1)]),
            "replay": int(replay), "verdict": Verdict(int(verdict)).word,
        }
        for first, last, replay, verdict in head.sources
    ]  # fmt: skip


# --- lines ------------------------------------------------------------------------------------------------------------


def _line_json(line: ValueLine, terms: SeriesTerms) -> dict[str, Any]:
    key = line.run, line.name, line.rank
    axis = line.axes.get(terms.x)
    if axis is None:
        return _empty_json(key, len(line), line.texts, f"it was not logged in a loop {terms.x!r}")
    keep = np.isfinite(axis)
    buckets = raw_buckets({terms.x: axis}, line.value)
    if not keep.all():
        rows = np.flatnonzero(keep)
        buckets = raw_buckets({terms.x: axis[rows]}, line.value[rows])
    if len(buckets) > 1 and (np.diff(buckets.axes[terms.x]) < 0).any():
        order = np.argsort(buckets.axes[terms.x], kind="stable")
        buckets = raw_buckets({terms.x: buckets.axes[terms.x][order]}, buckets.last[order])
    shown = _fit(_window(buckets, terms), terms.pixels)
    odd = np.flatnonzero(~np.isfinite(line.value) & keep)
    marks = [
        {"x": float(axis[row]), "kind": _kind(line.value[row])} for row in odd.tolist() if _is_inside(axis[row], terms)
    ]
    sources = [
        {"from": float(axis[a]), "to": float(axis[b]), "replay": replay, "verdict": Verdict(verdict).word}
        for a, b, replay, verdict in _stretches(line)
        if np.isfinite(axis[a]) and np.isfinite(axis[b])
    ]
    curve = _curve_json(key, len(line), line.texts, shown, terms)
    return curve | {"nonfinite": marks[:MAX_MARKS], "sources": sources}


def _stretches(line: ValueLine) -> Iterable[tuple[int, int, int, int]]:
    """Returns the stretches of replayed values: first and last position, the replay, the verdict."""
    if not len(line) or not line.replay.any():
        return []
    change = (np.diff(line.replay) != 0) | (np.diff(line.verdict.astype(np.int16)) != 0)
    starts = np.flatnonzero(np.r_[True, change]).tolist()
    ends = [*(start - 1 for start in starts[1:]), len(line) - 1]
    found = [
        (a, b, int(line.replay[a]), int(line.verdict[a])) for a, b in zip(starts, ends, strict=True) if line.replay[a]
    ]
    return found[:MAX_MARKS]


def _window(buckets: Buckets, terms: SeriesTerms) -> Buckets:
    """Returns the buckets in the window, and one on either side so that the curve reaches its edges."""
    axis = buckets.axes[terms.x]
    first = 0 if terms.start is None else int(np.searchsorted(axis, terms.start, side="left")) - 1
    last = len(axis) if terms.end is None else int(np.searchsorted(axis, terms.end, side="right")) + 1
    return buckets.part(slice(max(first, 0), last))


def _fit(buckets: Buckets, pixels: int) -> Buckets:
    if len(buckets) <= pixels:
        return buckets
    return buckets.reduce(-(-(len(buckets) - 1) // max(pixels - 1, 1)))


def _curve_json(
    key: tuple[str, str, int], count: int, texts: int, buckets: Buckets, terms: SeriesTerms
) -> dict[str, Any]:
    run, name, rank = key
    x = terms.x
    axis = buckets.axes[x]
    if not np.isfinite(axis).all():
        rows: Any = np.flatnonzero(np.isfinite(axis))
        buckets = Buckets({x: axis[rows]}, buckets.last[rows], buckets.low[rows], buckets.high[rows])
    is_reduced = terms.envelopes and len(buckets) < count
    return {
        "run": run, "name": name, "rank": rank, "count": count, "texts": texts,
        "x": buckets.axes[x].tolist(), "last": wire_floats(buckets.last),
        "low": null_if_nan(buckets.low) if is_reduced else [],
        "high": null_if_nan(buckets.high) if is_reduced else [],
    }  # fmt: skip


def _empty_json(key: tuple[str, str, int], count: int, texts: int, note: str) -> dict[str, Any]:
    run, name, rank = key
    empty: Mapping[str, list[Any]] = {"x": [], "last": [], "low": [], "high": [], "nonfinite": [], "sources": []}
    return {"run": run, "name": name, "rank": rank, "count": count, "texts": texts, **empty, "note": note}


def _is_inside(x: float, terms: SeriesTerms) -> bool:
    return (terms.start is None or x >= terms.start) and (terms.end is None or x <= terms.end)


def _kind(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
