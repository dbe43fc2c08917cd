"""The graph that a trace builds: functions, classes and values, which of them the code changes, and one hash of all."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from relive.errors import Unstable
from relive.hashing import stable_hash
from relive.memo.code.code_tokens import ABSENT, qualified_label, substitute_code
from relive.memo.code.snapshot import Snapshot, StateRoot, value_hash

IMMUTABLE_TYPES = (type(None), bool, int, float, complex, str, bytes, type(...), range)

Place = tuple[int, str]  # id of a namespace, cell or class, and the name there
IN_LIBRARY: Place = (-1, "")  # values of libraries, which need not have a hash


class PendingValue(NamedTuple):
    """A value that a function or class uses, hashed after all code is visited."""

    number: int
    name: str
    value: Any
    label: str
    place: Place  # where it was found
    is_lenient: bool = False  # without a stable hash, it is listed as unseen


class TraceGraph:
    """Builds a snapshot: nodes are functions, classes and values; links are uses of one by another."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._nodes: list[tuple[str, str]] = []  # label and own hash, in visiting order
        self._links: list[tuple[int, str, object]] = []
        self._pending: list[PendingValue] = []  # hashed once it is known which values the code mutates
        self._places: list[tuple[Place, tuple[Mapping[str, Any], str, Any]]] = []
        self._holders: dict[Place, StateRoot] = {}
        self._mutated: dict[int, Place] = {}  # ids of values that the code mutates
        self._rebound: dict[Place, str] = {}  # what is assigned to, with a label
        self._read: set[Place] = set()
        self._read_ids: set[int] = set()
        self._read_attributes: set[str] = set()
        self._whole: set[int] = set()  # ids of namespaces any part of which may matter
        self._classes: list[type] = []
        self._is_seeded = False

    def finish(self) -> Snapshot:
        snapshot = self._snapshot
        states: dict[Place, None] = {}
        while self._pending or self.link_more():
            waiting, self._pending = self._pending, []
            for one in waiting:
                self._link(one.number, one.name, self._value_token(one, states))
        snapshot.names = [guard for place, guard in self._places if place not in self._rebound]
        cells = snapshot.cells
        cells[:] = [one for one in cells if (id(one[0]), "") not in self._rebound]
        snapshot.states = [self._holders[place] for place in states if place in self._holders]
        if self._is_seeded:
            snapshot.volatile["seeded"] = None
        seen: dict[str, int] = {}
        for label, own in self._nodes:  # equal labels (lambdas, functions of a factory) get a number
            seen[label] = seen.get(label, 0) + 1
            snapshot.parts[label if seen[label] == 1 else f"{label} ({seen[label]})"] = own
        snapshot.digest = stable_hash(["code", self._nodes, self._links])
        return snapshot

    def visit(self, thing: Any) -> int:
        """Visits one of the user's functions or classes; returns its number."""
        raise NotImplementedError

    def link_more(self) -> bool:
        """Links what only counts when all code is known; returns whether there was anything."""
        raise NotImplementedError

    def _mark_mutated(self, value: Any, place: Place, holder: StateRoot) -> None:
        """Marks a value that the code changes, which makes it state rather than an input."""
        if isinstance(value, types.FunctionType | types.ModuleType | type):
            return
        self._rebound[place] = holder.label
        self._holders.setdefault(place, holder)
        if value is not ABSENT and type(value) not in IMMUTABLE_TYPES:  # immutable objects may be shared between names
            self._snapshot.alive.append(value)
            self._mutated[id(value)] = place

    def _guard(self, namespace: Mapping[str, Any], name: str, value: Any, place: Place) -> None:
        self._places.append((place, (namespace, name, value)))

    def _add_node(self, thing: Any, label: str, own: str) -> int:
        number = self._snapshot.index[id(thing)] = len(self._nodes)
        self._snapshot.alive.append(thing)
        self._nodes.append((label, own))
        return number

    def _link(self, number: int, name: str, token: object) -> None:
        self._links.append((number, name, token))

    def _add_pending(
        self, number: int, name: str, value: Any, label: str, place: Place, *, is_lenient: bool = False
    ) -> None:
        self._pending.append(PendingValue(number, name, value, label, place, is_lenient))

    def _value_token(self, one: PendingValue, states: dict[Place, None]) -> object:
        value = one.value
        place = self._mutated.get(id(value)) or (one.place if one.place in self._rebound else None)
        if place is not None:
            is_attribute_read = place[1] in self._read_attributes and isinstance(self._holders[place].holder, type)
            if place in self._read or id(value) in self._read_ids or is_attribute_read:
                states[place] = None
                self._snapshot.has_cache = True
            return "changed by the code itself"
        try:
            own = value_hash(value, lambda inner: substitute_code(inner, self.visit))
        except Unstable as error:
            if one.is_lenient:
                if one.place != IN_LIBRARY:
                    self._snapshot.unseen[one.label] = str(error)
                return f"some {qualified_label(type(value))}"
            raise Unstable(f"the global {one.label}: {error}") from error
        self._nodes.append((one.label, own))
        if type(value) not in IMMUTABLE_TYPES:  # identity does not reveal changes inside
            self._snapshot.alive.append(value)
            self._snapshot.values.append((value, own))
        return ["value", len(self._nodes) - 1]
