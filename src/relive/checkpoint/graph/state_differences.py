"""Compares the live state with a recorded graph, object by object; every difference has the name of its path."""

from __future__ import annotations

import marshal
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relive.checkpoint.analysis import is_timing
from relive.checkpoint.graph.graph_state import GraphState
from relive.checkpoint.graph.handlers import (
    FolderState,
    LibraryState,
    ProcessState,
    RandomState,
    differ_in_gradient,
    have_same_random_states,
)
from relive.checkpoint.graph.object_tokens import Token, is_node
from relive.checkpoint.graph.registry import type_name
from relive.checkpoint.graph.roots import PROCESS
from relive.checkpoint.graph.walk import MARSHAL_VERSION, ObjectWalk

# Files often hold times, and a replay does not read what it does not restore: they are restored, not compared.
_RANDOM = type_name(RandomState)
# What objects of a library have computed from their other attributes: a statement that asks for it fills it.
_CACHES = {"torchmetrics": frozenset({"_computed", "_forward_cache"})}
_TEMPORARY = re.compile(r"^/.*/tmp[a-z0-9_]{8}(?=/|$|\.)")  # a folder or file that `tempfile` has made, wherever
_MAX_KEYS = 10  # differing attributes of one object that are named
# Libraries set filters, variables of the environment and of their own when they are imported, which may be earlier in
# a replay.
_NOT_COMPARED = frozenset(map(type_name, (FolderState, LibraryState, ProcessState)))


@dataclass(frozen=True, slots=True)
class Difference:
    """An object that is not as it was recorded."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def compare_graphs(
    state: GraphState, walk: ObjectWalk, port: tuple[str, str] = ("", ""), *, lacks_gradients: bool = False
) -> tuple[int, list[Difference]]:
    """Returns how many objects are as they were recorded, and those that are not.

    `lacks_gradients`: the state was restored without them, so that a tensor may have none yet. `port` are the ports of
    the launcher, then and now: variables that differ only in it are as they were.
    """
    for buffer in walk.buffers.found:
        if buffer.digest is None and buffer.is_on_host:
            buffer.digest = int(walk.hash(buffer.view()))
    live = {node.way: node for node in walk.nodes}
    buffers = {buffer.way: buffer for buffer in walk.buffers.found}
    agreed, found = 0, []
    of_libraries = _held_by_libraries(state.nodes)
    for way, node in state.nodes.items():
        now = live.get(way)
        if now is None or way in state.unknown or way in walk.unknown or way in of_libraries:
            continue  # what holds it differs, if it was there
        if now.kind != node.kind:
            found.append(Difference(state.name(way), f"a {_short(now.kind)}, which was a {_short(node.kind)}"))
        elif now.digest != node.digest and not _is_same_for_training(node, now):
            if not (lacks_gradients and differ_in_gradient(node.content, now.content)):
                found += _describe_content(state.name(way), node, now)
        else:
            agreed += 1
    for way, stored in state.buffers.items():
        memory = buffers.get(way)
        if memory is None or stored.digest is None or memory.digest is None or way in state.unknown:
            continue
        if memory.digest != stored.digest:
            found.append(Difference(state.name(way), "other numbers"))
        else:
            agreed += 1
    found += differing_variables(state, walk.roots, port)
    return agreed, _unique(found)


def _held_by_libraries(nodes: Mapping[int, Any]) -> set[int]:
    """Returns the ways of what is not compared: nodes of these kinds, and what only variables of libraries hold."""
    found: set[int] = set()
    for way, node in nodes.items():  # what holds an object comes before it
        if node.kind in _NOT_COMPARED or node.parent in found:
            found.add(way)
    return found


def _differs_in_libraries(one: Any, other: Any) -> bool:
    """Whether two states of the global random generators differ only in which libraries are loaded."""
    return (
        one.kind == _RANDOM
        and None not in (one.content, other.content)
        and have_same_random_states(one.content, other.content)
    )


def _is_same_for_training(one: Any, other: Any) -> bool:
    return _differs_in_libraries(one, other) or _differs_in_times_and_caches(one.kind, one.content, other.content)


def _differs_in_times_and_caches(kind: str, one: Any, other: Any) -> bool:
    """Whether two dicts or objects differ only in times, as their names say, temporary names, and caches."""
    if not (type(one) is type(other) is tuple and len(one) == len(other) and one[::2] == other[::2]):
        return False
    caches = _CACHES.get(kind.partition(".")[0], ())
    return all(
        (type(name) is str and (name in caches or (is_timing(name) and type(a) is type(b) and type(a) in (float, int))))
        or _differs_in_temporary_name(a, b)
        for name, a, b in zip(one[::2], one[1::2], other[1::2], strict=True)
        if a != b
    )


def differing_nodes(then: GraphState, now: GraphState) -> list[Difference]:
    """Returns the objects that two graphs have and whose content differs."""
    of_libraries = _held_by_libraries(then.nodes)
    return [
        difference
        for way, node in then.nodes.items()
        if way in now.nodes
        and way not in of_libraries
        and now.nodes[way].digest != node.digest
        and way not in then.unknown
        and not _is_same_for_training(node, now.nodes[way])
        for difference in _describe_content(then.name(way), node, now.nodes[way])
    ]


def _describe_content(name: str, one: Any, other: Any) -> list[Difference]:
    """Returns the attributes and keys that differ, if both objects have the same; else the object as a whole."""
    then, now = one.content, other.content
    are_named = type(then) is type(now) is tuple and then[::2] == now[::2] and len(then) == len(now)
    if are_named and all(type(key) is str for key in then[::2]):
        differing = [key for key, a, b in zip(then[::2], then[1::2], now[1::2], strict=False) if a != b]
        if len(differing) < len(then) / 2 or len(differing) == 1:
            return [Difference(f"{name}.{key}", "other content") for key in differing[:_MAX_KEYS]]
    return [Difference(name, "other content")]


def differing_variables(
    then: GraphState, now: Mapping[str, Token], port: tuple[str, str] = ("", "")
) -> list[Difference]:
    """Returns the variables that are bound to other objects, or to other plain values, than they were."""
    return [
        Difference(_root_name(key), "bound to another object" if is_node(token) else "another value")
        for key, token in then.roots.items()
        if key[0] != PROCESS
        and key in now
        and now[key] != token
        and key not in then.left_out
        and not _is_same_token(now[key], token)
        and not (all(port) and _with_port(now[key], *port) == token)
        and not _differs_in_temporary_name(now[key], token)
    ]


def _is_same_token(one: Token, other: Token) -> bool:
    """Whether tokens are the same although they are not equal: they hold NaN."""
    return type(one) is type(other) and marshal.dumps(one, MARSHAL_VERSION) == marshal.dumps(other, MARSHAL_VERSION)


def _differs_in_temporary_name(one: Any, other: Any) -> bool:
    """Whether two texts differ only in a name that `tempfile` has made up."""
    return type(one) is type(other) is str and (
        _TEMPORARY.sub("", one) == _TEMPORARY.sub("", other) and _TEMPORARY.match(one) is not None
    )


def _with_port(token: Any, then: str, now: str) -> Any:
    """Returns a plain value with the recorded port in place of the one of this process."""
    if type(token) is tuple:
        return tuple(_with_port(part, then, now) for part in token)
    if type(token) is str:
        return token.replace(now, then)
    return int(then) if type(token) is int and str(token) == now else token


def _root_name(key: str) -> str:
    return key.split("|")[-1]


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]


def _unique(found: list[Difference]) -> list[Difference]:
    return list({(one.name, one.why): one for one in found}.values())
