"""One moment of the training's state: copied out of its memory at once, to be written at leisure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relive.checkpoint.copying import Copier, Part
from relive.checkpoint.leaves import ALIGN_BYTES, Leaf, LeafType
from relive.checkpoint.subjects import Subject
from relive.checkpoint.tree import Json, Planter, Unpicklable


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A copy of the state: leaves as bytes, and the tree that says what they are."""

    subjects: dict[str, dict[str, Json]]  # name → kind, leaves, rest
    leaves: list[tuple[LeafType, Any]]
    blobs: list[bytes]
    size_bytes: int
    left_out: list[str]  # what could not be kept, and why


class Arena:
    """Memory for one copy of the state, used again and again: fresh memory would cost more than the copy."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def reserve(self, size_bytes: int) -> None:
        """Take memory and touch it, so that the first copy is as quick as the later ones."""
        if size_bytes > len(self._memory):
            memory = _page_locked(size_bytes)
            memory.fill(0)
            self._memory = memory

    @property
    def size_bytes(self) -> int:
        return len(self._memory)

    def slice(self, start: int, size_bytes: int) -> Any:
        return self._memory[start : start + size_bytes]


def _page_locked(size_bytes: int) -> Any:
    """Memory that a GPU can copy into by itself, where there is a GPU."""
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return np.empty(size_bytes, np.uint8)


class Capture:
    """Takes moments of some subjects. What it learnt about their tensors is kept, so that the next one is quick."""

    def __init__(self, subjects: dict[str, Subject]) -> None:
        self.subjects = subjects
        self.arena = Arena()
        self._leaves: list[Leaf] = []
        self._numbers: dict[str, dict[str, int]] = {}
        self._seen: dict[int, int] = {}
        self._laid = False
        self._parts: list[Part] = []
        self._plain_bytes = 0
        self._odd: list[Leaf] = []
        self._copier = Copier()

    def size_bytes(self) -> int:
        """How much memory the tensors take now."""
        self._look()
        return sum(_aligned(leaf.size_bytes) for leaf in self._leaves)

    def prepare(self) -> None:
        """Make the arena ready before it is needed."""
        self.arena.reserve(self.size_bytes())

    def take(self, extra: dict[str, Any]) -> Moment:
        """Copy the state now. `extra` are small values besides the subjects: random states, variables."""
        self._look()
        if not self._laid:
            self._lay()
        for leaf in self._odd:
            leaf.copy_anyhow()
        self._copier.copy(self._parts, self._plain_bytes)
        planter = Planter()
        planter._seen.update(self._seen)
        planter.leaves.extend(leaf.source for leaf in self._leaves)
        described = {
            name: {"kind": subject.kind, "leaves": self._numbers[name], "rest": subject.rest(planter.plant)}
            for name, subject in self.subjects.items()
        }
        left_out: list[str] = []
        for name, value in extra.items():
            try:
                described[name] = {"kind": "extra", "leaves": {}, "rest": planter.plant(value, name)}
            except Unpicklable as error:
                left_out.append(str(error))
        loose = [_copied(source) for source in planter.leaves[len(self._leaves) :]]
        copies = [*((leaf.kind, leaf.copied) for leaf in self._leaves), *loose]
        _wait_for_devices(self._leaves)
        size = sum(len(data) for _, data in copies) + sum(map(len, planter.blobs))
        return Moment(described, copies, planter.blobs, size, left_out)

    def _look(self) -> None:
        """Find the tensors, unless they are where they were."""
        known = len(self._numbers) == len(self.subjects)  # subjects may join when they are found near the loop
        if (
            known
            and self._leaves
            and all(s.is_same() for s in self.subjects.values())
            and all(x.is_same() for x in self._leaves)
        ):
            return
        self._leaves, self._numbers, self._seen, self._laid = [], {}, {}, False
        for name, subject in self.subjects.items():
            self._numbers[name] = {key: self._number(tensor) for key, tensor in subject.tensors().items()}

    def _number(self, tensor: Any) -> int:
        if id(tensor) not in self._seen:
            self._seen[id(tensor)] = len(self._leaves)
            self._leaves.append(Leaf(tensor))
        return self._seen[id(tensor)]

    def _lay(self) -> None:
        self.arena.reserve(sum(_aligned(leaf.size_bytes) for leaf in self._leaves))
        at = 0
        for leaf in self._leaves:
            leaf.lay(self.arena.slice(at, leaf.size_bytes))
            at += _aligned(leaf.size_bytes)
        self._parts = [part for leaf in self._leaves for part in leaf.parts]
        self._plain_bytes = sum(len(source) for _, source in self._parts)
        self._odd = [leaf for leaf in self._leaves if not leaf.parts]
        self._laid = True


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def _copied(source: Any) -> tuple[LeafType, Any]:
    leaf = Leaf(source)
    memory = np.empty(leaf.size_bytes, np.uint8)
    leaf.lay(memory)
    for target, plain in leaf.parts:
        np.copyto(target, plain)
    leaf.copy_anyhow()
    return leaf.kind, memory


def _wait_for_devices(leaves: list[Leaf]) -> None:
    if any(leaf.is_on_device for leaf in leaves):
        import torch

        torch.accelerator.synchronize()
