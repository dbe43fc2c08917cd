"""How logged values, each in its own context, line up as the rows of one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.query.table.wide_table import Mask, present
from relive.store.catalog import Points
from relive.store.journal import from_text

Ints = NDArray[np.int64]
Path = tuple[str, ...]

ABSENT = -1  # no value of this name here or nearer: one from further out may stand here
NOTHING = -2  # the name has values in this context, but fewer than the context has rows
_LAST = np.iinfo(np.int64).max
_ROOM = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """`first` is the first of the points that made a row; `source` the point that stands there, for each name.

    Points are given by their position; a negative one means that there is none.
    """

    first: Ints
    source: Mapping[int, Ints]


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    """The values of one name at one path, sorted by context and then by time."""

    point: Ints
    context: Ints  # the keys of the contexts that have values, ascending
    start: Ints  # where in `point` the values of a context begin
    count: Ints

    @classmethod
    def of(cls, key: Ints, point: Ints) -> _Stack:
        found = key[point]
        if np.any(found[1:] <= found[:-1]):
            order = np.argsort(found, kind="stable")
            found, point = found[order], point[order]
        start = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
        return cls(point, found[start], start, np.diff(np.append(start, len(found))))

    def find(self, key: Ints) -> tuple[Ints, Mask]:
        """The place of each context among those of the stack, and whether it is there at all."""
        if np.array_equal(key, self.context):  # much quicker than searching, and the common case
            return np.arange(len(key)), np.ones(len(key), dtype=bool)
        place = np.minimum(np.searchsorted(self.context, key), len(self.context) - 1)
        return place, self.context[place] == key

    def last_before(self, place: Ints, time: Ints) -> Ints:
        """The last value of each of these contexts that was logged before `time`, or else its first."""
        start = self.start[place]
        if self.count.max() == 1:
            return self.point[start]
        span = max(int(self.point.max()), int(time.max())) + 1
        when = np.repeat(np.arange(len(self.context)), self.count) * span + self.point
        before: Ints = np.searchsorted(when, place * span + time) - start
        return self.point[start + np.maximum(before - 1, 0)]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The rows that the contexts of one path make."""

    path: Path
    first: Ints
    source: dict[int, Ints]

    def kept(self, keep: Mask) -> _Block:
        return replace(self, first=self.first[keep], source={name: rows[keep] for name, rows in self.source.items()})


def line_up(points: Points, at: Ints, name: NDArray[Any]) -> Rows:
    """The rows made by the points at these positions, which bear these names (as small integers), as they happened.

    A context is the loops a value was logged in, with the items they had, in one process of one run. In a context,
    the k-th values of all names stand on its k-th row, and a name with one value there stands on all of its rows.
    A value further out is joined onto the rows further in: of several, the last one logged before the row, else the
    first. A name found in a nearer context is not looked for further out. A row of an outer context is left out when
    each of its k-th values stands on an inner row, so that nothing logged is lost and nothing is told twice.
    """
    places: dict[Path, int] = {}
    node_of = np.array([places.setdefault(path, len(places)) for path in points.paths] or [0])
    node = node_of[points.path[at]]
    paths = list(places)
    keys = _keys(points, at, node, paths)
    shown = np.zeros(len(at), dtype=bool)
    blocks: list[_Block] = []
    logged = _stacks(keys, node, name, paths)
    for path, stacks in sorted(logged.items(), key=lambda item: len(item[0]), reverse=True):
        key = keys[len(path)]
        inner = [block for block in blocks if block.path[: len(path)] == path]
        for block in inner:
            _join(stacks, block, key, shown)
        blocks.append(_own_rows(path, stacks, shown if inner else None))
    return _merged(blocks, at)


def _stacks(keys: list[Ints], node: Ints, name: NDArray[Any], paths: list[Path]) -> dict[Path, dict[int, _Stack]]:
    """The values of each name at each path."""
    names = int(name.max(initial=0)) + 1
    stacks: dict[Path, dict[int, _Stack]] = {}
    for code, mine in _split(node * names + name).items():
        path = paths[code // names]
        stacks.setdefault(path, {})[code % names] = _Stack.of(keys[len(path)], mine)
    return stacks


def _split(code: Ints) -> dict[int, Ints]:
    """The positions of each code, ascending. Few codes sort in linear time, as numpy does for short integers."""
    found = distinct(code)
    if len(found) == 1:
        return {found[0]: np.arange(len(code))}
    order = np.argsort(code.astype(np.uint16) if max(found, default=0) < 1 << 16 else code, kind="stable")
    ends = np.cumsum(np.bincount(code)[found])[:-1]
    return dict(zip(found, np.split(order, ends), strict=True)) if found else {}


def _join(stacks: Mapping[int, _Stack], block: _Block, key: Ints, shown: Mask) -> None:
    """Lets outer values stand on the rows of an inner block, and notes in `shown` which ones did."""
    for name, stack in stacks.items():
        source = block.source.setdefault(name, np.full(len(block.first), ABSENT))
        free = np.flatnonzero(source == ABSENT)
        place, there = stack.find(key[block.first[free]])
        rows, place = free[there], place[there]
        if len(rows):
            source[rows] = stack.last_before(place, block.first[rows])
            shown[source[rows]] = True


def _own_rows(path: Path, stacks: Mapping[int, _Stack], shown: Mask | None) -> _Block:
    """The rows of all contexts of a path; given `shown`, only those with a value that stands on no inner row."""
    context = _union([stack.context for stack in stacks.values()])
    places = {name: stack.find(context) for name, stack in stacks.items()}
    counts = {name: np.where(there, stacks[name].count[place], 0) for name, (place, there) in places.items()}
    most = np.maximum.reduce(list(counts.values()))
    of, occurrence = _occurrences(most)
    block = _Block(path, np.full(len(occurrence), _LAST), {})
    lost = np.zeros(len(occurrence), dtype=bool)
    for name, stack in stacks.items():
        count, start = counts[name][of], stack.start[places[name][0]][of]
        own, single = occurrence < count, count == 1
        point = stack.point[np.where(own & ~single, start + occurrence, start)]
        block.source[name] = np.where(own | single, point, np.where(count > 0, NOTHING, ABSENT))
        np.minimum(block.first, np.where(own, point, _LAST), out=block.first)
        if shown is not None:
            lost |= own & ~shown[point]
    return block if shown is None else block.kept(lost)


def _occurrences(most: Ints) -> tuple[Ints | slice, Ints]:
    """For contexts with `most` rows each: the context of every row, and its ordinal in that context."""
    if most.max() == 1:
        return slice(None), np.zeros(len(most), dtype=np.int64)
    of = np.repeat(np.arange(len(most)), most)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(most) - most, most)


def distinct(small: NDArray[Any]) -> list[int]:
    """The distinct values of an array of small non-negative integers, ascending; quicker than sorting."""
    return np.flatnonzero(np.bincount(small)).tolist()


def _union(contexts: list[Ints]) -> Ints:
    """All the keys, ascending; names that are always logged together are spared the sorting."""
    if all(np.array_equal(contexts[0], other) for other in contexts[1:]):
        return contexts[0]
    return np.unique(np.concatenate(contexts))


def _merged(blocks: list[_Block], at: Ints) -> Rows:
    """The rows of all blocks as they happened, in positions of the points themselves."""
    if not blocks:
        return Rows(np.zeros(0, dtype=np.int64), {})
    first = np.concatenate([block.first for block in blocks])
    order = np.argsort(first) if np.any(np.diff(first) < 0) else np.arange(len(first))
    source: dict[int, Ints] = {}
    for name in {name for block in blocks for name in block.source}:
        parts = [block.source.get(name, np.full(len(block.first), ABSENT)) for block in blocks]
        place = np.concatenate(parts)[order]
        source[name] = np.where(place >= 0, at[place], ABSENT)
    return Rows(at[first[order]], source)


def _keys(points: Points, at: Ints, node: Ints, paths: list[Path]) -> list[Ints]:
    """For each depth, a number per point that tells its contexts at that depth apart; deeper points have all."""
    depth_of = np.array([len(path) for path in paths] or [0])
    depth = depth_of[node]
    keys = [_processes(points, at)]
    items = _item_codes(points, at, node, paths)
    for level in range(int(depth.max(initial=0))):
        iteration = _dense(points.dims[at, level], depth > level)
        code = None if items is None else items[level]
        if code is not None:
            iteration = np.where(code >= 0, iteration.max() + 1 + code, iteration)
        keys.append(_paired(keys[-1], iteration))
    return keys


def _processes(points: Points, at: Ints) -> Ints:
    """A number for each process of each run: the points of one stand together."""
    new = np.zeros(len(at), dtype=bool)
    for part in (points.run, points.rank, points.process):
        here = part[at]
        new[1:] |= here[1:] != here[:-1]
    return np.cumsum(new)


def _dense(values: Ints, used: Mask) -> Ints:
    """Small non-negative numbers that tell the used values apart as the values do."""
    low, high = int(values[used].min()), int(values[used].max())
    if high - low < 1 << 31:
        return np.where(used, values - low, 0)
    return np.unique(np.where(used, values, low), return_inverse=True)[1].astype(np.int64)


def _paired(outer: Ints, inner: Ints) -> Ints:
    """One number for each pair of numbers, without overflow."""
    width = int(inner.max()) + 1
    if (int(outer.max()) + 1) * width >= _ROOM:
        outer = np.unique(outer, return_inverse=True)[1].astype(np.int64)
    if (int(outer.max()) + 1) * width >= _ROOM:
        inner = np.unique(inner, return_inverse=True)[1].astype(np.int64)
        width = int(inner.max()) + 1
    return outer * width + inner


def _item_codes(points: Points, at: Ints, node: Ints, paths: list[Path]) -> list[Ints] | None:
    """For each level, a number per point for the item of that loop which isn't an integer, or -1."""
    if points.items is None:
        return None
    text = points.items[at]
    rows = np.flatnonzero(present(text))
    seen: dict[str, int] = {}
    which = np.fromiter((seen.setdefault(one, len(seen)) for one in text[rows]), dtype=np.int64, count=len(rows))
    known = [from_text(one) for one in seen]
    codes: dict[str, int] = {}
    levels = [np.full(len(at), -1) for _ in range(max(map(len, paths), default=0))]
    for place, path in enumerate(paths):
        here = node[rows] == place
        for level, loop in enumerate(path):
            levels[level][rows[here]] = _codes(known, loop, codes)[which[here]]
    return levels


def _codes(known: Iterable[Mapping[str, Any]], loop: str, codes: dict[str, int]) -> Ints:
    found = (codes.setdefault(repr(items[loop]), len(codes)) if loop in items else -1 for items in known)
    return np.fromiter(found, dtype=np.int64)
