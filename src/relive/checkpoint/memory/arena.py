"""The reusable memory that leaves are copied into, and the layout that copies all of them in a few calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from relive.checkpoint.memory.leaf import Leaf
from relive.checkpoint.memory.parallel_copy import Copier, CopyPlan, split_copy

ALIGN_BYTES = 64
SMALL_BYTES = 32 << 10  # below this size, one call per leaf takes longer than the copy itself


class Arena:
    """Memory for one copy of the state, reused because allocating fresh memory costs more than the copy."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._lock = threading.Lock()

    def reserve(self, size_bytes: int) -> None:
        """Allocates memory and touches every page, so that the first copy is as fast as later ones."""
        with self._lock:
            if size_bytes > len(self._memory):
                memory = _allocate(size_bytes)
                memory.fill(0)
                self._memory = memory

    def reserve_soon(self, size_bytes: int) -> None:
        """Like `reserve`, on a background thread; numpy releases the GIL while it fills the memory."""
        threading.Thread(target=self.reserve, args=(size_bytes,), name="relive-arena", daemon=True).start()

    def slice(self, start: int, size_bytes: int) -> Any:
        """Returns a view of the memory from `start` on."""
        return self._memory[start : start + size_bytes]


def _allocate(size_bytes: int) -> Any:
    """Returns uninitialized memory, page-locked where there is a GPU, so that it can copy asynchronously."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return np.empty(size_bytes, np.uint8)


class Layout:
    """The positions of leaves in an arena. Small leaves are adjacent, so that one call copies all of them."""

    def __init__(self, leaves: list[Leaf], arena: Arena) -> None:
        flat_views = [leaf.flat() for leaf in leaves]
        small = [at for at, flat in enumerate(flat_views) if flat is not None and len(flat) < SMALL_BYTES]
        small_bytes = sum(leaves[at].size_bytes for at in small)
        arena.reserve(max_layout_bytes(leaves))
        targets: dict[int, Any] = {}
        end = 0
        for at in small:
            targets[at] = arena.slice(end, leaves[at].size_bytes)
            end += leaves[at].size_bytes
        for at, leaf in enumerate(leaves):
            if at not in targets:
                end = _round_up(end)
                targets[at] = arena.slice(end, leaf.size_bytes)
                end += leaf.size_bytes
        self.copies: list[tuple[Leaf, Any]] = [(leaf, targets[at]) for at, leaf in enumerate(leaves)]
        self.size_bytes = sum(leaf.size_bytes for leaf in leaves)
        self._small = [flat_views[at] for at in small]
        self._small_target = arena.slice(0, small_bytes)
        self._indirect = [(leaf, targets[at]) for at, leaf in enumerate(leaves) if flat_views[at] is None]
        self._is_on_device = any(leaf.is_on_device for leaf in leaves)
        large = [
            (targets[at], flat) for at, flat in enumerate(flat_views) if flat is not None and len(flat) >= SMALL_BYTES
        ]
        self._large = CopyPlan([part for target, source in large for part in split_copy(target, source)])

    def copy(self, copier: Copier) -> None:
        """Copies the current content of all leaves into the arena."""
        for leaf, target in self._indirect:
            leaf.copy_to(target)
        self._copy_small()
        copier.copy(self._large)
        if self._is_on_device:
            import torch

            torch.accelerator.synchronize()

    def begin_copy(self, copier: Copier) -> Callable[[], None] | None:
        """Begins to copy while the caller goes on; returns what finishes it, or None if that is not possible."""
        finish_large = None if self._indirect else copier.begin(self._large)
        if finish_large is None:
            return None

        def finish() -> None:
            self._copy_small()
            if not finish_large():
                copier.copy(self._large)

        return finish

    def _copy_small(self) -> None:
        if self._small:
            np.concatenate(self._small, out=self._small_target)


def max_layout_bytes(leaves: list[Leaf]) -> int:
    """Returns an upper bound of the memory that a layout of these leaves needs."""
    return sum(_round_up(leaf.size_bytes) for leaf in leaves) + ALIGN_BYTES


def _round_up(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES
