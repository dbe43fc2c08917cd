"""Where each leaf goes in memory that is used again and again, and how all of them get there in a few calls."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from relive.checkpoint.memory.parallel_copy import Copier, Copies, parts_of
from relive.checkpoint.memory.tensors import Leaf, LeafType

ALIGN_BYTES = 64
SMALL_BYTES = 32 << 10  # below, a call for each leaf takes longer than its copy


class Arena:
    """Memory for one copy of the state: fresh memory would cost more than the copy."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._reserving = threading.Lock()

    def reserve(self, size_bytes: int) -> None:
        """Take memory and touch it, so that the first copy is as quick as the later ones."""
        with self._reserving:
            if size_bytes > len(self._memory):
                memory = _page_locked(size_bytes)
                memory.fill(0)
                self._memory = memory

    def reserve_soon(self, size_bytes: int) -> None:
        """The same without waiting for it; numpy lets others work meanwhile."""
        threading.Thread(target=self.reserve, args=(size_bytes,), name="relive-arena", daemon=True).start()

    def slice(self, start: int, size_bytes: int) -> Any:
        return self._memory[start : start + size_bytes]


def _page_locked(size_bytes: int) -> Any:
    """Memory that a GPU can copy into by itself, where there is a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return np.empty(size_bytes, np.uint8)


class Layout:
    """The places of some leaves in an arena. Small ones lie side by side, so that one call copies them all."""

    def __init__(self, leaves: list[Leaf], arena: Arena) -> None:
        plain = [leaf.flat() for leaf in leaves]
        small = [at for at, flat in enumerate(plain) if flat is not None and len(flat) < SMALL_BYTES]
        small_bytes = sum(leaves[at].size_bytes for at in small)
        arena.reserve(size_bytes(leaves))
        places: dict[int, Any] = {}
        end = 0
        for at in small:
            places[at] = arena.slice(end, leaves[at].size_bytes)
            end += leaves[at].size_bytes
        for at, leaf in enumerate(leaves):
            if at not in places:
                end = _aligned(end)
                places[at] = arena.slice(end, leaf.size_bytes)
                end += leaf.size_bytes
        self.copies: list[tuple[LeafType, Any]] = [(leaf.kind, places[at]) for at, leaf in enumerate(leaves)]
        self.size_bytes = sum(leaf.size_bytes for leaf in leaves)
        self._small = [plain[at] for at in small]
        self._small_place = arena.slice(0, small_bytes)
        self._odd = [(leaf, places[at]) for at, leaf in enumerate(leaves) if plain[at] is None]
        self._is_on_device = any(leaf.is_on_device for leaf in leaves)
        large = [(places[at], flat) for at, flat in enumerate(plain) if flat is not None and at not in set(small)]
        self._large = Copies([part for target, source in large for part in parts_of(target, source)])

    def copy(self, copier: Copier) -> None:
        """Copy all leaves as they are now."""
        for leaf, place in self._odd:
            leaf.copy_to(place)
        if self._small:
            np.concatenate(self._small, out=self._small_place)
        copier.copy(self._large)
        if self._is_on_device:
            import torch

            torch.accelerator.synchronize()


def size_bytes(leaves: list[Leaf]) -> int:
    """How much memory a layout of these leaves takes at most."""
    return sum(_aligned(leaf.size_bytes) for leaf in leaves) + ALIGN_BYTES


def _aligned(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES
