"""Compares two recorded states object by object, from the same variables on, and names every leaf that differs.

The two graphs may come from different processes and different versions of the code: objects are paired by the place
that they have in each, and never by their numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relive.checkpoint.graph import GraphState
from relive.hindsight.divergence.graph_tokens import (
    AtPath,
    content_parts,
    generator_states,
    is_code,
    key_names,
    plain_text,
    root_names,
    token_parts,
)

# What kind of difference it is. Only the first four can make runs part.
NUMBERS, GENERATOR, VALUE, STRUCTURE = "numbers", "generator", "value", "structure"
TEXT, CODE, SHARING, FILES, CLOCK = "text", "code", "sharing", "files", "clock"
DECISIVE = (NUMBERS, GENERATOR, VALUE, STRUCTURE)
MEMORY_ORDER = {NUMBERS: 0, GENERATOR: 1, STRUCTURE: 2, VALUE: 3}
MAX_COUNTERPARTS = 4  # with which an object is compared that is shared here and not there
_RANDOM, _FILES = "p|random generators", "p|files"
_PLAIN_NUMBERS = (bool, int, float, complex, bytes, type(None))


@dataclass(frozen=True, slots=True)
class LeafDifference:
    """One leaf that is not the same in two states."""

    path: str  # `model.fc.weight`
    kind: str
    one: Any = None  # what it is on either side, where that can be shown
    other: Any = None

    @property
    def is_decisive(self) -> bool:
        return self.kind in DECISIVE


@dataclass(slots=True)
class GraphDifference:
    """How two states differ, and how much was compared."""

    agreed: int = 0  # objects, pieces of memory and variables that are equal
    leaves: list[LeafDifference] = field(default_factory=list)
    unknown: int = 0  # objects that could not be looked at on one side
    only_one: list[str] = field(default_factory=list)  # variables that the other side does not have
    only_other: list[str] = field(default_factory=list)


def compare_states(one: GraphState, other: GraphState) -> GraphDifference:
    """Compares two states, variable by variable. Among the leaves memory comes first, and what the user named."""
    found = _Comparison(one, other)
    found.run()
    result = found.result
    unique = {(leaf.path, leaf.kind): leaf for leaf in result.leaves}
    named = tuple(key[2:] for key in one.roots if key[0] == "=")
    result.leaves = sorted(
        unique.values(),
        key=lambda leaf: (MEMORY_ORDER.get(leaf.kind, len(MEMORY_ORDER)), not leaf.path.startswith(named)),
    )
    return result


def moved_generators(start: GraphState, later: GraphState) -> set[str]:
    """Returns the global random generators from which numbers were drawn between two moments of one run."""
    before, after = (generator_states(state, state.roots.get(_RANDOM)) for state in (start, later))
    return {name for name in after if before.get(name) != after[name]}


class _Comparison:
    def __init__(self, one: GraphState, other: GraphState) -> None:
        self._one, self._other = one, other
        self._todo: deque[tuple[int, int, str]] = deque()
        self._by_one: dict[int, list[int]] = {}
        self._by_other: dict[int, list[int]] = {}
        self.result = GraphDifference()

    def run(self) -> None:
        names, only_one, only_other = root_names(self._one.roots, self._other.roots)
        self.result.only_one, self.result.only_other = only_one, only_other
        for key, other_key, name in names:
            first, second = self._one.roots[key], self._other.roots[other_key]
            if key == _RANDOM:
                self._compare_generators(first, second)
            elif key == _FILES:
                self._compare_files(first, second)
            elif other_key not in self._other.left_out and key not in self._one.left_out:
                self._compare(first, second, name)
        while self._todo:
            self._compare_nodes(*self._todo.popleft())

    # --- tokens -----------------------------------------------------------------------------------------------------

    def _compare(self, first: Any, second: Any, path: str, *, in_code: bool = False) -> None:
        ways = _way(first), _way(second)
        if ways[0] is not None and ways[1] is not None:
            self._pair(ways[0], ways[1], path)
            return
        if type(first) is tuple and type(second) is tuple and None is ways[0] is ways[1]:
            parts = token_parts(first), token_parts(second)
            if parts[0] is not None and parts[1] is not None:
                self._compare_parts(parts[0], parts[1], path, in_code=in_code)
                return
        if type(first) is type(second) and _is_equal(first, second):
            self.result.agreed += 1
            return
        self._add(path, CODE if in_code else _kind_of_leaf(first, second), plain_text(first), plain_text(second))

    def _pair(self, way: int, other: int, path: str) -> None:
        """Has two objects compared. If one of them is another one's counterpart already, they are shared otherwise."""
        others, ones = self._by_one.setdefault(way, []), self._by_other.setdefault(other, [])
        if other in others:
            return
        if others or ones:
            self._add(path, SHARING)
            if max(len(others), len(ones)) >= MAX_COUNTERPARTS:
                self.result.unknown += 1
                return
        others.append(other)
        ones.append(way)
        self._todo.append((way, other, path))

    def _compare_parts(
        self, first: Iterable[AtPath], second: Iterable[AtPath], path: str, *, in_code: bool = False,
        shown: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        there = dict(second)
        here = dict(first)
        missing = [label for label in here if label not in there]
        added = [label for label in there if label not in here]
        if missing or added:
            label = (missing or added)[0]
            counts = (f"{len(here)} parts", f"{len(there)} parts") if len(here) != len(there) else (None, None)
            self._add(path + label, CODE if in_code else STRUCTURE, *counts)
        for label, token in here.items():
            if label in there:
                name = (shown or {}).get(label, label)
                self._compare(token, there[label], path + name, in_code=in_code)

    # --- objects ----------------------------------------------------------------------------------------------------

    def _compare_nodes(self, way: int, other_way: int, path: str) -> None:
        one, other = self._one.nodes.get(way), self._other.nodes.get(other_way)
        if one is None or other is None:
            self._compare_memory(way, other_way, path)
            return
        is_unknown = way in self._one.unknown or other_way in self._other.unknown
        if is_unknown or one.content is None or other.content is None:
            self.result.unknown += 1
            return
        if one.kind != other.kind:
            self._add(path, STRUCTURE, _short(one.kind), _short(other.kind))
            return
        if one.digest == other.digest and one.content == other.content:
            self.result.agreed += 1  # what it holds is still to be compared
        first, second = _parts(self._one, one), _parts(self._other, other)
        self._compare_parts(first, second, path, in_code=is_code(one.kind), shown=key_names(self._one, first))

    def _compare_memory(self, way: int, other_way: int, path: str) -> None:
        one, other = self._one.buffers.get(way), self._other.buffers.get(other_way)
        if one is None or other is None or None in (one.digest, other.digest):
            self.result.unknown += 1
        elif one.size_bytes != other.size_bytes:
            self._add(path, NUMBERS, f"{one.size_bytes} bytes", f"{other.size_bytes} bytes")
        elif one.digest != other.digest:
            self._add(path, NUMBERS)
        else:
            self.result.agreed += 1

    # --- the process ------------------------------------------------------------------------------------------------

    def _compare_generators(self, first: Any, second: Any) -> None:
        here, there = generator_states(self._one, first), generator_states(self._other, second)
        for name in here.keys() & there.keys():
            if here[name] == there[name]:
                self.result.agreed += 1
            else:
                self._add(name, GENERATOR)

    def _compare_files(self, first: Any, second: Any) -> None:
        one, other = self._one.nodes.get(_way(first) or 0), self._other.nodes.get(_way(second) or 0)
        if one is None or other is None or not one.content or not other.content:
            return
        changed = [dict(zip(node.content[0][::2], node.content[0][1::2], strict=False)) for node in (one, other)]
        for path in changed[0].keys() | changed[1].keys():
            if changed[0].get(path) != changed[1].get(path):
                self._add(f"file {path}", FILES)

    def _add(self, path: str, kind: str, one: Any = None, other: Any = None) -> None:
        self.result.leaves.append(LeafDifference(path, kind, one, other))


def _parts(state: GraphState, node: Any) -> list[AtPath]:
    return content_parts(state, node.kind, node.content)


def _way(token: Any) -> int | None:
    return token[0] if type(token) is tuple and len(token) == 1 and type(token[0]) is int else None


def _is_equal(first: Any, second: Any) -> bool:
    if type(first) in (float, complex):
        return repr(first) == repr(second)  # tells 0.0 from -0.0, and NaN is NaN
    return bool(first == second)


def _kind_of_leaf(first: Any, second: Any) -> str:
    if type(first) in _PLAIN_NUMBERS and type(second) in _PLAIN_NUMBERS:
        return VALUE
    tags = {token[0] if type(token) is tuple and token else type(token).__name__ for token in (first, second)}
    if tags <= {"n", "v", "d"} and len(tags) == 1:
        return VALUE
    if tags <= {"str", "~", "s"}:
        return TEXT
    return CODE if tags <= {"g", "?", "m", "b"} else STRUCTURE


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]
