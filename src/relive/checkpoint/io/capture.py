"""Captures the training's state: copies it out of the training's memory quickly, to be written later."""

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
    TensorPlacement,
    Unpicklable,
    max_layout_bytes,
)
from relive.checkpoint.state import ModuleHandler, OptimizerHandler, StateHandler, part_name

_OBJECT_FIELDS = frozenset(
    {"_module", "_optimizer", "_array", "_generator", "_object", "_owner"}
)  # the attributes in which handlers hold their object


@dataclass(frozen=True, slots=True, eq=False)
class CapturedState:
    """A copy of the state: the bytes of all leaves, and an entry for each object that refers to them."""

    entries: dict[str, dict[str, Json]]  # name → kind, leaves, rest
    leaves: list[tuple[LeafType, Any]]
    blobs: list[bytes]
    size_bytes: int
    uncaptured: list[str]  # what could not be captured, and why
    is_valid: Callable[[], bool] = lambda: True  # whether tensors still had the assumed shapes; to be called soon


class Capture:
    """Captures the state of some objects repeatedly. Remembers their tensors, so that the next capture is fast."""

    def __init__(self, handlers: dict[str, StateHandler]) -> None:
        self.handlers = handlers
        self.known: dict[int, str] = {}  # objects with their own entry, by identity
        self._arena = Arena()
        self._copier = Copier()
        self._leaves: list[Leaf] = []
        self._sources: list[Any] = []
        self._placement = TensorPlacement([])
        self._is_stale = False
        self._leaf_numbers: dict[str, dict[str, int]] = {}
        self._number_by_id: dict[int, int] = {}
        self._parts: dict[int, str] = {}
        self._layout: Layout | None = None

    def replace_group(self, group: str, handlers: dict[str, StateHandler]) -> None:
        """Captures these handlers as well from now on, in place of the previous ones of the group."""
        prefix = f"{group}:"
        before = {name: handler for name, handler in self.handlers.items() if name.startswith(prefix)}
        after = {prefix + name: handler for name, handler in handlers.items()}
        if {name: _handler_identity(one) for name, one in before.items()} == {
            name: _handler_identity(one) for name, one in after.items()
        }:
            return
        self.handlers = {name: one for name, one in self.handlers.items() if name not in before} | after
        self._leaf_numbers = {}

    def module_parts(self) -> dict[int, str]:
        """Returns the names of all layers and tensors of modules, by identity: others refer to them by name."""
        self._collect_tensors()
        return self._parts

    def size_bytes(self) -> int:
        """Returns the size of the tensors when they were last collected."""
        if not self._leaves:
            self._collect_tensors()
        return sum(leaf.size_bytes for leaf in self._leaves)

    def prepare(self) -> None:
        """Reserves the arena in the background before it is needed: touching fresh memory takes longer than copying."""
        self._collect_tensors()
        self._arena.reserve_soon(max_layout_bytes(self._leaves))

    def take(self, extra: dict[str, Any], *, is_certain: bool = False, is_fresh: bool = False) -> CapturedState:
        """Copies the state now. `extra` are small values without a handler: random states, variables.

        Tensors rarely change their shapes in place, so that is checked by the writer, while the training goes on; with
        `is_certain` it is checked first, so that the result is valid. `is_fresh`: `module_parts` was called just now.
        """
        if is_certain and not self._placement.have_same_shapes():
            self._is_stale = True
        if self._is_stale or not is_fresh:
            self._collect_tensors()
        if self._layout is None:
            self._layout = Layout(self._leaves, self._arena)
        self._layout.copy(self._copier)
        flattener = Flattener(self._sources, self._number_by_id, self.known)
        entries = {
            name: {
                "kind": handler.kind,
                "leaves": self._leaf_numbers[name],
                "rest": handler.other_state(flattener.flatten),
            }
            for name, handler in self.handlers.items()
        }
        uncaptured: list[str] = [
            why for handler in self.handlers.values() for why in getattr(handler, "uncaptured", ())
        ]
        for name, value in extra.items():
            try:
                entries[name] = {"kind": "extra", "leaves": {}, "rest": flattener.flatten(value, name)}
            except Unpicklable as error:
                uncaptured.append(str(error))
        small = [_copy_leaf(source) for source in flattener.leaves[len(self._leaves) :]]
        small_bytes = sum(len(data) for _, data in small) + sum(map(len, flattener.blobs))
        leaves = self._layout.copies + small
        size = self._layout.size_bytes + small_bytes
        is_valid = partial(self._is_valid, self._placement)
        return CapturedState(entries, leaves, flattener.blobs, size, uncaptured, is_valid)

    def _is_valid(self, placement: TensorPlacement) -> bool:
        """Called by the writer's thread, soon after a capture."""
        is_valid = placement.have_same_shapes()
        self._is_stale |= not is_valid
        return is_valid

    def _collect_tensors(self) -> None:
        """Collects the tensors of all handlers, unless they are the same as before."""
        is_complete = len(self._leaf_numbers) == len(self.handlers)  # discovery may add handlers
        if (
            is_complete
            and self._leaves
            and not self._is_stale
            and all(handler.has_same_layout() for handler in self.handlers.values())
            and self._placement.have_same_addresses()
        ):
            return
        self._leaves, self._leaf_numbers, self._number_by_id, self._layout, self._is_stale = [], {}, {}, None, False
        for name, handler in self.handlers.items():
            self._leaf_numbers[name] = {key: self._number_of(tensor) for key, tensor in handler.tensors().items()}
        for name, handler in self.handlers.items():
            if isinstance(handler, OptimizerHandler):  # the parameters that it trains and no module has
                others = handler.parameters_beyond(self._number_by_id)
                self._leaf_numbers[name] |= {key: self._number_of(tensor) for key, tensor in others.items()}
        self._sources = [leaf.source for leaf in self._leaves]
        self._placement = TensorPlacement(self._sources)
        self._parts = {
            id(part): part_name(name, path)
            for name, handler in self.handlers.items()
            if isinstance(handler, ModuleHandler)
            for path, part in handler.parts.items()
        }

    def _number_of(self, tensor: Any) -> int:
        if id(tensor) not in self._number_by_id:
            self._number_by_id[id(tensor)] = len(self._leaves)
            self._leaves.append(Leaf(tensor))
        return self._number_by_id[id(tensor)]


def _handler_identity(handler: StateHandler) -> tuple[Any, ...]:
    """Returns the class of a handler and the identity of its object."""
    objects = [value for key, value in sorted(vars(handler).items()) if key in _OBJECT_FIELDS]
    return (type(handler), *map(id, objects))


def _copy_leaf(source: Any) -> tuple[LeafType, Any]:
    leaf = Leaf(source)
    flat = leaf.flat()
    if flat is not None:
        return leaf.kind, flat.copy()
    memory = np.empty(leaf.size_bytes, np.uint8)
    leaf.copy_to(memory)
    return leaf.kind, memory
