"""How logged values, each in its own context, are aligned as the rows of one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.query.table.wide_table import Mask, present
from relive.store.catalog import Points
from relive.store.journal import from_json

Ints = NDArray[np.int64]
Path = tuple[str, ...]

ABSENT = -1  # the name has no value in this context or an inner one: a value of an outer context may fill the cell
EXHAUSTED = -2  # the name has values in this context, but fewer than the context has rows
_LAST = np.iinfo(np.int64).max
_MAX_KEY = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """`first` holds for each row the first point that made it; `source` holds, by name, the point in each cell.

    Points are given by position; a negative position means that there is none.
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
        """Returns the position of each context among those of the stack, and whether it is there at all."""
        if np.array_equal(key, self.context):  # much faster than searching, and the common case
            return np.arange(len(key)), np.ones(len(key), dtype=bool)
        place = np.minimum(np.searchsorted(self.context, key), len(self.context) - 1)
        return place, self.context[place] == key

    def last_before(self, place: Ints, time: Ints) -> Ints:
        """Returns for each of these contexts the last value logged before `time`, or else its first value."""
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

    def take(self, keep: Mask) -> _Block:
        return replace(self, first=self.first[keep], source={name: rows[keep] for name, rows in self.source.items()})


def align_rows(points: Points, at: Ints, name: NDArray[Any]) -> Rows:
    """Returns the rows made by the points at these positions with these names (as small integers), in logging order.

    A context is the loops a value was logged in, with their current items, in one process of one run. In a context,
    the k-th values of all names form its k-th row, and a name with a single value there is repeated on all its rows.
    A value of an outer context is joined onto the rows of inner contexts: of several, the last one logged before the
    row, else the first. A name found in an inner context is not looked up in outer ones. A row of an outer context is
    omitted if each of its k-th values is on an inner row, so that no value is lost and none is repeated needlessly.
    """
    places: dict[Path, int] = {}
    node_of = np.array([places.setdefault(path, len(places)) for path in points.paths] or [0])
    node = node_of[points.path[at]]
    paths = list(places)
    keys = _context_keys(points, at, node, paths)
    is_joined = np.zeros(len(at), dtype=bool)
    blocks: list[_Block] = []
    logged = _stacks(keys, node, name, paths)
    for path, stacks in sorted(logged.items(), key=lambda item: len(item[0]), reverse=True):
        key = keys[len(path)]
        inner = [block for block in blocks if block.path[: len(path)] == path]
        for block in inner:
            _join_outer(stacks, block, key, is_joined)
        blocks.append(_own_rows(path, stacks, is_joined if inner else None))
    return _merge(blocks, at)


def _stacks(keys: list[Ints], node: Ints, name: NDArray[Any], paths: list[Path]) -> dict[Path, dict[int, _Stack]]:
    """Returns the values of each name at each path."""
    names = int(name.max(initial=0)) + 1
    stacks: dict[Path, dict[int, _Stack]] = {}
    for code, rows in _split(node * names + name).items():
        path = paths[code // names]
        stacks.setdefault(path, {})[code % names] = _Stack.of(keys[len(path)], rows)
    return stacks


def _split(code: Ints) -> dict[int, Ints]:
    """Returns the positions of each code, ascending; numpy sorts 16-bit codes in linear time."""
    found = distinct(code)
    if len(found) == 1:
        return {found[0]: np.arange(len(code))}
    order = np.argsort(code.astype(np.uint16) if max(found, default=0) < 1 << 16 else code, kind="stable")
    ends = np.cumsum(np.bincount(code)[found])[:-1]
    return dict(zip(found, np.split(order, ends), strict=True)) if found else {}


def _join_outer(stacks: Mapping[int, _Stack], block: _Block, key: Ints, is_joined: Mask) -> None:
    """Fills empty cells of an inner block with outer values, and marks these values in `is_joined`."""
    for name, stack in stacks.items():
        source = block.source.setdefault(name, np.full(len(block.first), ABSENT))
        free = np.flatnonzero(source == ABSENT)
        place, there = stack.find(key[block.first[free]])
        rows, place = free[there], place[there]
        if len(rows):
            source[rows] = stack.last_before(place, block.first[rows])
            is_joined[source[rows]] = True


def _own_rows(path: Path, stacks: Mapping[int, _Stack], is_joined: Mask | None) -> _Block:
    """Returns the rows of all contexts of a path; given `is_joined`, only rows with a value that is on no inner row."""
    context = _union([stack.context for stack in stacks.values()])
    places = {name: stack.find(context) for name, stack in stacks.items()}
    counts = {name: np.where(there, stacks[name].count[place], 0) for name, (place, there) in places.items()}
    most = np.maximum.reduce(list(counts.values()))
    of, occurrence = _occurrences(most)
    block = _Block(path, np.full(len(occurrence), _LAST), {})
    is_needed = np.zeros(len(occurrence), dtype=bool)
    for name, stack in stacks.items():
        count, start = counts[name][of], stack.start[places[name][0]][of]
        own, single = occurrence < count, count == 1
        point = stack.point[np.where(own & ~single, start + occurrence, start)]
        block.source[name] = np.where(own | single, point, np.where(count > 0, EXHAUSTED, ABSENT))
        np.minimum(block.first, np.where(own, point, _LAST), out=block.first)
        if is_joined is not None:
            is_needed |= own & ~is_joined[point]
    return block if is_joined is None else block.take(is_needed)


def _occurrences(most: Ints) -> tuple[Ints | slice, Ints]:
    """Returns for contexts with `most` rows each the context of every row, and its position in that context."""
    if most.max() == 1:
        return slice(None), np.zeros(len(most), dtype=np.int64)
    of = np.repeat(np.arange(len(most)), most)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(most) - most, most)


def distinct(small: NDArray[Any]) -> list[int]:
    """Returns the distinct values of an array of small non-negative integers, ascending; faster than sorting."""
    return np.flatnonzero(np.bincount(small)).tolist()


def _union(contexts: list[Ints]) -> Ints:
    """Returns all keys, ascending; names that are always logged together need no sorting."""
    if all(np.array_equal(contexts[0], other) for other in contexts[1:]):
        return contexts[0]
    return np.unique(np.concatenate(contexts))


def _merge(blocks: list[_Block], at: Ints) -> Rows:
    """Returns the rows of all blocks in logging order, as positions of the points themselves."""
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


def _context_keys(points: Points, at: Ints, node: Ints, paths: list[Path]) -> list[Ints]:
    """Returns for each depth a number per point that identifies its context at that depth."""
    depth_of = np.array([len(path) for path in paths] or [0])
    depth = depth_of[node]
    keys = [_process_keys(points, at)]
    items = _item_codes(points, at, node, paths)
    for level in range(int(depth.max(initial=0))):
        iteration = _compact(points.dims[at, level], depth > level)
        code = None if items is None else items[level]
        if code is not None:
            iteration = np.where(code >= 0, iteration.max() + 1 + code, iteration)
        keys.append(_pair_keys(keys[-1], iteration))
    return keys


def _process_keys(points: Points, at: Ints) -> Ints:
    """Returns a number for each process of each run; the points of one process are adjacent."""
    new = np.zeros(len(at), dtype=bool)
    for part in (points.run, points.rank, points.process):
        here = part[at]
        new[1:] |= here[1:] != here[:-1]
    return np.cumsum(new)


def _compact(values: Ints, used: Mask) -> Ints:
    """Maps the used values to small non-negative numbers, distinct where the values are."""
    low, high = int(values[used].min()), int(values[used].max())
    if high - low < 1 << 31:
        return np.where(used, values - low, 0)
    return np.unique(np.where(used, values, low), return_inverse=True)[1].astype(np.int64)


def _pair_keys(outer: Ints, inner: Ints) -> Ints:
    """Returns one number for each pair of numbers, without overflow."""
    width = int(inner.max()) + 1
    if (int(outer.max()) + 1) * width >= _MAX_KEY:
        outer = np.unique(outer, return_inverse=True)[1].astype(np.int64)
    if (int(outer.max()) + 1) * width >= _MAX_KEY:
        inner = np.unique(inner, return_inverse=True)[1].astype(np.int64)
        width = int(inner.max()) + 1
    return outer * width + inner


def _item_codes(points: Points, at: Ints, node: Ints, paths: list[Path]) -> list[Ints] | None:
    """Returns for each level a number per point for the loop's item if that isn't an integer, else -1."""
    if points.items is None:
        return None
    text = points.items[at]
    rows = np.flatnonzero(present(text))
    seen: dict[str, int] = {}
    which = np.fromiter((seen.setdefault(one, len(seen)) for one in text[rows]), dtype=np.int64, count=len(rows))
    known = [from_json(one) for one in seen]
    codes: dict[str, int] = {}
    levels = [np.full(len(at), -1) for _ in range(max(map(len, paths), default=0))]
    for place, path in enumerate(paths):
        here = node[rows] == place
        for level, loop in enumerate(path):
            levels[level][rows[here]] = _encode_items(known, loop, codes)[which[here]]
    return levels


def _encode_items(known: Iterable[Mapping[str, Any]], loop: str, codes: dict[str, int]) -> Ints:
    found = (codes.setdefault(repr(items[loop]), len(codes)) if loop in items else -1 for items in known)
    return np.fromiter(found, dtype=np.int64)
