"""Finds things in a recorded graph: objects by variable names, tensors by path, counterparts of live objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from relive.checkpoint.graph.graph_state import GraphState
from relive.checkpoint.graph.guards import guard_of
from relive.checkpoint.graph.object_tokens import Token, is_node, nodes_in
from relive.checkpoint.graph.roots import EXTRA, FRAME, MODULE, NAMED
from relive.checkpoint.graph.walk import KnownWays, ObjectWalk

_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_MAX_PATH = 50
_CODE_KINDS = frozenset({"builtins.function", "builtins.type"})


def named_token(state: GraphState, name: str) -> Token:
    """Returns the token of a named object, an extra value or a variable; None if there is none of that name."""
    by_kind: dict[str, Token] = {}
    for key, token in state.roots.items():
        kind, *parts = key.split("|")
        qualified = f"{parts[-2]}.{parts[-1]}" if len(parts) > 1 else parts[-1]
        if name in (parts[-1], qualified):
            by_kind[kind] = token
    return next((by_kind[kind] for kind in (NAMED, EXTRA, FRAME, MODULE) if kind in by_kind), None)


def changed_variables(start: GraphState, changes: GraphState) -> list[tuple[str, bool]]:
    """Returns the variables that a loop bound or whose objects it changed, and whether each holds an object."""
    changed = set(changes.nodes) | {way for way, one in changes.buffers.items() if one.leaf is not None}
    state = start.overlaid(changes)
    named = {way for key, token in state.roots.items() if key[0] == NAMED for way in reachable(state, token)}
    found: dict[str, bool] = {}
    for key, token in changes.roots.items():
        kind, *parts = key.split("|")
        if kind not in (MODULE, FRAME):
            continue
        ways = nodes_in(token)
        if not ways:
            if start.roots.get(key) != token:
                found.setdefault(parts[-1], False)
            continue
        inside = set(reachable(state, token)) - named
        node = state.nodes.get(ways[0])
        is_code = node is not None and node.kind in _CODE_KINDS
        if inside & changed and not is_code:
            found[parts[-1]] = is_node(token)
    return list(found.items())


def changed_roots(start: GraphState, changes: GraphState) -> dict[str, str]:
    """Returns the names of roots that were bound anew, or inside of which something has changed, with their types."""
    nodes = {**start.nodes, **changes.nodes}
    found: dict[str, str] = {}
    for key, token in changes.roots.items():
        if not is_node(token) and start.roots.get(key) != token and key[0] in (MODULE, FRAME):
            found[key.split("|")[-1]] = type(token).__name__
    for way in [*changes.nodes, *(one.parent for one in changes.buffers.values() if one.leaf is not None)]:
        seen = 0
        while way in nodes and nodes[way].parent in nodes and seen < _MAX_PATH:
            way, seen = nodes[way].parent, seen + 1
        if way in nodes:
            found.setdefault(nodes[way].label, nodes[way].kind)
    return found


def reachable(state: GraphState, token: Token) -> list[int]:
    """Returns the ways of all nodes and buffers that a token leads to."""
    seen: dict[int, None] = {}
    todo = deque(nodes_in(token))
    while todo:
        way = todo.popleft()
        if way not in seen:
            seen[way] = None
            node = state.nodes.get(way)
            if node is not None and node.content is not None:
                todo.extend(nodes_in(node.content))
    return list(seen)


def tensor_paths(state: GraphState, token: Token) -> dict[str, Token]:
    """Returns the tensors and arrays of an object by their paths inside it: `fc.weight`; "" for a tensor itself."""
    found: dict[str, Token] = {}
    seen: set[int] = set()
    todo: deque[tuple[str, Token]] = deque([("", token)])
    while todo:
        path, current = todo.popleft()
        node = state.nodes.get(current[0]) if is_node(current) else None
        if node is None or node.way in seen or node.content is None:
            continue
        seen.add(node.way)
        if node.content and type(node.content) is tuple and node.content[0] in ("strided", "sparse", "array"):
            found[path] = current
        else:
            todo.extend((_join(path, label), inner) for label, inner in _parts(node.content))
    return found


def _join(path: str, label: str) -> str:
    return f"{path}.{label}" if path else label


def _parts(content: Any) -> Iterator[tuple[str, Token]]:
    """Yields what a content holds, with a label: attributes and keys by name, items by number."""
    if type(content) is not tuple:
        return
    names = content[::2]
    if len(content) % 2 == 0 and all(type(name) in (str, int) for name in names):
        for name, token in zip(names, content[1::2], strict=True):
            if name in _MODULE_DICTS and not is_node(token):
                yield from _parts(token)
            elif is_node(token):
                yield str(name), token
            elif type(token) is tuple:
                yield from ((f"{name}.{label}", inner) for label, inner in _parts(token))
        return
    number = 0
    for token in content:
        if is_node(token):
            yield str(number), token
            number += 1
        elif type(token) is tuple:
            yield from _parts(token)


def module_paths(state: GraphState, token: Token) -> frozenset[str]:
    """Returns the parameters and layers that the modules of an object have, as `way/name`."""
    found: set[str] = set()
    for way in reachable(state, token):
        node = state.nodes.get(way)
        found |= _module_names(way, node.content if node is not None else None)
    return frozenset(found)


def _module_names(way: int, content: Any) -> set[str]:
    if type(content) is not tuple or "_parameters" not in content[::2] or "_modules" not in content[::2]:
        return set()
    held = dict(zip(content[::2], content[1::2], strict=True))
    tokens = [
        (name, one) for part in _MODULE_DICTS for name, one in zip(held[part][::2], held[part][1::2], strict=True)
    ]
    return {f"{name}" for name, one in tokens if one is not None}


@dataclass(slots=True)
class Matches:
    """Live objects under the ways of their recorded counterparts."""

    ways: KnownWays = field(default_factory=KnownWays)
    paths: frozenset[str] = frozenset()


def match_objects(state: GraphState, tokens: Mapping[str, Token], walk: ObjectWalk) -> Matches:
    """Goes through recorded and live objects side by side, from the same names, and pairs what is in the same place."""
    live = {node.way: node for node in walk.nodes}
    buffers = {buffer.way: buffer for buffer in walk.buffers.found}
    found, taken = Matches(), set[int]()
    paths: set[str] = set()
    todo: deque[tuple[Token, Token]] = deque((token, walk.roots[f"{NAMED}|{name}"]) for name, token in tokens.items())
    done: set[int] = set()
    while todo:
        one, other = todo.popleft()
        if not (type(one) is tuple and type(other) is tuple):
            continue
        if not (is_node(one) and is_node(other)):
            todo.extend(_pairs(one, other))
            continue
        way, now = one[0], other[0]
        if way in done or now in taken or _are_other_singletons(state.nodes.get(way), live.get(now)):
            continue
        done.add(way)
        taken.add(now)
        if now in buffers:
            buffer = buffers[now]
            found.ways.buffers[buffer.address, buffer.size_bytes] = way, guard_of(buffer.source)
        node, target = state.nodes.get(way), live.get(now)
        if node is not None and target is not None and node.kind == target.kind:
            found.ways.objects[id(target.obj)] = (
                way,
                type(target.obj),
                guard_of(target.obj, (target.parent, target.label)),
            )
            paths |= _module_names(way, target.content)
            todo.extend(_pairs(node.content, target.content))
    found.paths = frozenset(paths)
    return found


def _are_other_singletons(node: Any, target: Any) -> bool:
    if node is None or target is None or not target.handler.is_singleton or None in (node.content, target.content):
        return False
    return bool(node.content[:2] != target.content[:2])


def _pairs(one: Any, other: Any) -> Iterator[tuple[Token, Token]]:
    """Yields the parts of two contents that are in the same place: by name where there are names, else by position."""
    if type(one) is not tuple or type(other) is not tuple:
        return
    first, second = one[::2], other[::2]
    are_named = all(type(name) is str for name in (*first, *second)) and len(one) % 2 == len(other) % 2 == 0
    if are_named and first != second:
        there = dict(zip(second, other[1::2], strict=True))
        yield from ((token, there[name]) for name, token in zip(first, one[1::2], strict=True) if name in there)
    else:
        yield from zip(one, other, strict=False)
