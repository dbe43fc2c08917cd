"""A recorded graph as data: nodes and buffers by way, the roots, names of paths; encoded for a checkpoint."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relive.checkpoint.graph.object_tokens import Token
from relive.checkpoint.graph.walk import MARSHAL_VERSION, label_of
from relive.checkpoint.plain import read_marshalled

MAX_NAME = 200


@dataclass(slots=True)
class StoredNode:
    """An object of a recorded graph. Its content is None if it is unknown, or not held."""

    way: int
    parent: int
    label: str
    kind: str
    content: Any
    digest: int

    def to_row(self) -> tuple[Any, ...]:
        return self.way, self.parent, self.label, self.kind, self.content, self.digest


@dataclass(slots=True)
class StoredBuffer:
    """A buffer of a recorded graph: its hash, and the leaf that has its bytes, if the checkpoint holds them."""

    way: int
    parent: int
    size_bytes: int
    digest: int | None
    leaf: int | None

    def to_row(self) -> tuple[Any, ...]:
        return self.way, self.parent, self.size_bytes, self.digest, self.leaf


@dataclass(slots=True)
class GraphState:
    """What a walk found, or a part of it."""

    nodes: dict[int, StoredNode] = field(default_factory=dict)
    buffers: dict[int, StoredBuffer] = field(default_factory=dict)
    roots: dict[str, Token] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # variables that are not held
    has_gradients: bool = False

    def encode(self) -> bytes:
        return marshal.dumps(
            (
                [node.to_row() for node in self.nodes.values()],
                [buffer.to_row() for buffer in self.buffers.values()],
                self.roots, self.unknown, self.left_out, self.has_gradients,
            ),
            MARSHAL_VERSION,
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes, *, is_trusted: bool) -> GraphState:
        """Returns the state; without trust, bytes that are no plain data are refused."""
        load = marshal.loads if is_trusted else read_marshalled
        nodes, buffers, roots, unknown, left_out, has_gradients = load(data)
        return cls(
            {row[0]: StoredNode(*row) for row in nodes},
            {row[0]: StoredBuffer(*row) for row in buffers},
            roots, unknown, left_out, has_gradients,
        )  # fmt: skip

    def overlaid(self, later: GraphState) -> GraphState:
        """Returns this graph with the changes of a later one."""
        return GraphState(
            {**self.nodes, **later.nodes}, {**self.buffers, **later.buffers}, later.roots, later.unknown,
            later.left_out, later.has_gradients,
        )  # fmt: skip

    def name(self, way: int) -> str:
        """Returns the path of an object, as one would write it: `model.fc.weight`."""
        found = path_name(way, self.nodes, self.buffers)
        for given, variable in self._aliases().items():
            if found == given or found.startswith((f"{given}.", f"{given}[")):
                return variable + found[len(given) :]
        return found

    def _aliases(self) -> dict[str, str]:
        """Returns the variables that hold named objects, by the names that these were given in `checkpointing`."""
        named = {token: key[2:] for key, token in self.roots.items() if key.startswith("=|")}
        found: dict[str, str] = {}
        for key, token in self.roots.items():
            if key[0] in "mf" and type(token) is tuple and token in named:
                found.setdefault(named[token], key.rpartition("|")[2])
        return {given: variable for given, variable in found.items() if given != variable}


def content_digest(kind: str, content: Any) -> int:
    """Returns the digest that a walk gives to an object whose whole content is hashed."""
    from xxhash import xxh3_64_intdigest

    return int(xxh3_64_intdigest(marshal.dumps((kind, content), MARSHAL_VERSION)))


def path_name(way: int, nodes: Mapping[int, Any], buffers: Mapping[int, Any]) -> str:
    parts: list[str] = []
    if way in buffers and way not in nodes:
        way = buffers[way].parent
    seen: set[int] = set()
    while way in nodes and way not in seen:
        seen.add(way)
        parts.append(nodes[way].label)
        way = nodes[way].parent
    return "".join(reversed(parts)).replace("._modules", "")[:MAX_NAME] or "(unnamed)"


def stored_nodes(nodes: Iterable[Any]) -> dict[int, StoredNode]:
    """Returns the nodes of a walk without their objects."""
    return {
        node.way: StoredNode(node.way, node.parent, label_of(node.form, node.key), node.kind, node.content, node.digest)
        for node in nodes
    }
