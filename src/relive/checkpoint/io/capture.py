"""One moment of the training's state: copied out of its memory at once, to be written at leisure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from relive.checkpoint.memory import (
    Arena,
    Copier,
    Flattener,
    Json,
    Layout,
    Leaf,
    LeafType,
    TensorSources,
    Unpicklable,
    size_bytes,
)
from relive.checkpoint.state import ModuleHandler, OptimizerHandler, StateHandler, part_name

_HELD = frozenset({"_module", "_optimizer", "_array", "_generator", "_thing", "_owner"})  # what subjects are of


@dataclass(frozen=True, slots=True, eq=False)
class CapturedState:
    """A copy of the state: leaves as bytes, and the tree that says what they are."""

    subjects: dict[str, dict[str, Json]]  # name → kind, leaves, rest
    leaves: list[tuple[LeafType, Any]]
    blobs: list[bytes]
    size_bytes: int
    left_out: list[str]  # what could not be kept, and why
    is_right: Callable[[], bool] = lambda: True  # were tensors laid out as they were taken to be? Asked soon afterwards


class Capture:
    """Takes moments of some subjects. What it learnt about their tensors is kept, so that the next one is quick."""

    def __init__(self, subjects: dict[str, StateHandler]) -> None:
        self.subjects = subjects
        self.known: dict[int, str] = {}  # the objects that were named, by identity
        self._arena = Arena()
        self._copier = Copier()
        self._leaves: list[Leaf] = []
        self._sources: list[Any] = []
        self._laid_out = TensorSources([])
        self._is_stale = False
        self._numbers: dict[str, dict[str, int]] = {}
        self._seen: dict[int, int] = {}
        self._parts: dict[int, str] = {}
        self._layout: Layout | None = None

    def replace(self, group: str, subjects: dict[str, StateHandler]) -> None:
        """Take also these from now on, instead of those that were given for the group before."""
        start = f"{group}:"
        known = {name: subject for name, subject in self.subjects.items() if name.startswith(start)}
        found = {start + name: subject for name, subject in subjects.items()}
        if {name: _identity(one) for name, one in known.items()} == {
            name: _identity(one) for name, one in found.items()
        }:
            return
        self.subjects = {name: one for name, one in self.subjects.items() if name not in known} | found
        self._numbers = {}

    def parts(self) -> dict[int, str]:
        """What the modules are made of, by identity: whoever else holds a layer has that very layer."""
        self._look()
        return self._parts

    def size_bytes(self) -> int:
        """How much memory the tensors took when they were last looked at."""
        if not self._leaves:
            self._look()
        return sum(leaf.size_bytes for leaf in self._leaves)

    def prepare(self) -> None:
        """Make the arena ready before it is needed, in the background: touching memory takes longer than copying."""
        self._look()
        self._arena.reserve_soon(size_bytes(self._leaves))

    def take(self, extra: dict[str, Any], *, is_certain: bool = False, has_looked: bool = False) -> CapturedState:
        """Copy the state now. `extra` are small values besides the subjects: random states, variables.

        Whether tensors changed their shapes in place, which they hardly ever do, is found out when the training needs
        not wait for it; unless it must be certain that this moment counts. `has_looked`: it was just asked for `parts`.
        """
        if is_certain and not self._laid_out.have_their_shapes():
            self._is_stale = True
        if self._is_stale or not has_looked:
            self._look()
        if self._layout is None:
            self._layout = Layout(self._leaves, self._arena)
        self._layout.copy(self._copier)
        planter = Flattener(self._sources, self._seen, self.known)
        described = {
            name: {"kind": subject.kind, "leaves": self._numbers[name], "rest": subject.rest(planter.flatten)}
            for name, subject in self.subjects.items()
        }
        left_out: list[str] = [why for subject in self.subjects.values() for why in getattr(subject, "left_out", ())]
        for name, value in extra.items():
            try:
                described[name] = {"kind": "extra", "leaves": {}, "rest": planter.flatten(value, name)}
            except Unpicklable as error:
                left_out.append(str(error))
        loose = [_copied(source) for source in planter.leaves[len(self._leaves) :]]
        loose_bytes = sum(len(data) for _, data in loose) + sum(map(len, planter.blobs))
        copies = self._layout.copies + loose
        size = self._layout.size_bytes + loose_bytes
        return CapturedState(described, copies, planter.blobs, size, left_out, partial(self._is_right, self._laid_out))

    def _is_right(self, laid_out: TensorSources) -> bool:
        """Asked by the writer's thread, soon after a moment was taken."""
        is_right = laid_out.have_their_shapes()
        self._is_stale |= not is_right
        return is_right

    def _look(self) -> None:
        """Find the tensors, unless they are where they were."""
        known = len(self._numbers) == len(self.subjects)  # subjects may join when they are found near the loop
        if (
            known
            and self._leaves
            and not self._is_stale
            and all(subject.is_same() for subject in self.subjects.values())
            and self._laid_out.are_in_place()
        ):
            return
        self._leaves, self._numbers, self._seen, self._layout, self._is_stale = [], {}, {}, None, False
        for name, subject in self.subjects.items():
            self._numbers[name] = {key: self._number(tensor) for key, tensor in subject.tensors().items()}
        for name, subject in self.subjects.items():
            if isinstance(subject, OptimizerHandler):  # what it trains and no module has
                loose = subject.parameters_beyond(self._seen)
                self._numbers[name] |= {key: self._number(tensor) for key, tensor in loose.items()}
        self._sources = [leaf.source for leaf in self._leaves]
        self._laid_out = TensorSources(self._sources)
        self._parts = {
            id(part): part_name(name, way)
            for name, subject in self.subjects.items()
            if isinstance(subject, ModuleHandler)
            for way, part in subject.parts.items()
        }

    def _number(self, tensor: Any) -> int:
        if id(tensor) not in self._seen:
            self._seen[id(tensor)] = len(self._leaves)
            self._leaves.append(Leaf(tensor))
        return self._seen[id(tensor)]


def _identity(subject: StateHandler) -> tuple[Any, ...]:
    """Which object a subject is of."""
    held = [value for key, value in sorted(vars(subject).items()) if key in _HELD]
    return (type(subject), *map(id, held))


def _copied(source: Any) -> tuple[LeafType, Any]:
    leaf = Leaf(source)
    plain = leaf.flat()
    if plain is not None:
        return leaf.kind, plain.copy()
    memory = np.empty(leaf.size_bytes, np.uint8)
    leaf.copy_to(memory)
    return leaf.kind, memory
