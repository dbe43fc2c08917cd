"""Captures the training's state: what a loop has changed is taken out of the training's memory, to be written later."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from relive.checkpoint.graph import GraphState, Observation, Observer, Roots, changed_roots, guard_of, held_source
from relive.checkpoint.memory import Arena, Copier, Layout, Leaf, max_layout_bytes


@dataclass(frozen=True, slots=True, eq=False)
class CapturedState:
    """A copy of the state: the graph when the loop began, what has changed since then, and the bytes of buffers."""

    start: bytes
    changes: GraphState
    leaves: list[Any]  # the bytes of each leaf
    copied: list[tuple[int, int]]  # way and leaf of each buffer that was copied now
    size_bytes: int
    uncaptured: list[str]  # what changed and could not be captured, and why
    unknown: list[str]  # what could not be looked at, and why
    state_at_start: GraphState

    def changed_names(self) -> dict[str, str]:
        """Returns the variables and named objects that have changed, with their types."""
        return changed_roots(self.state_at_start, self.changes)


@dataclass(frozen=True, slots=True, eq=False)
class _EarlyCopy:
    """A copy under way."""

    held: list[Any]  # what owns the memory
    finish: Callable[[], None]


class Capture:
    """Captures the state around one loop repeatedly. Remembers its memory, so that the next capture is fast."""

    def __init__(self, named: Mapping[str, Any], home: str = "") -> None:
        self.named = dict(named)
        self._home = home
        self._arena = Arena()
        self._copier = Copier()
        self._layout: Layout | None = None
        self._layout_key: list[tuple[int, int]] = []
        self._sources: list[tuple[Any, int, int]] = []  # of the layout: guard, address and size of each piece of memory
        self._start: bytes = b""
        self._size_bytes = 0
        self.observer = Observer(home)

    def begin(
        self, frames: Sequence[FrameType] = (), left_out: Mapping[int, Any] | None = None, *,
        extra: Mapping[str, Any] | None = None, elapsed_s: float | None = None, items: Any = None,
    ) -> None:  # fmt: skip
        """Looks at the state when the loop begins, which iterates over `items`."""
        self.observer = Observer(self._home)
        elapsed_s = time.process_time() if elapsed_s is None else elapsed_s
        self.observer.begin(
            Roots(self.named, frames, left_out or {}, extra=extra or {}, has_modules=bool(frames)),
            elapsed_s=elapsed_s,
            items=items,
        )
        assert self.observer.start is not None
        self._start = self.observer.start.encode()
        self._size_bytes = self._size_bytes or self.observer.volatile_bytes

    def release(self) -> None:
        """Lets go of all objects of the script: they are deleted when it deletes them."""
        self.observer = Observer(self._home)
        self._layout, self._layout_key, self._sources = None, [], []

    def size_bytes(self) -> int:
        """Returns the size of the last capture; before the first one, that of what changes for certain."""
        if not self.observer.is_started:
            self.begin()
        return self._size_bytes

    def prepare(self) -> None:
        """Reserves the arena in the background before it is needed: touching fresh memory takes longer than copying."""
        self._arena.reserve_soon(int(1.05 * self.size_bytes()) + (1 << 16))

    def take(
        self, extra: Mapping[str, Any] | None = None, *, frames: Sequence[FrameType] = (),
        left_out: Mapping[int, Any] | None = None, with_gradients: bool = False, seconds: float = 60.0,
    ) -> CapturedState:  # fmt: skip
        """Copies the state now. `extra` are further values by name."""
        if not self.observer.is_started:
            self.begin(frames, left_out, extra=extra)
        observer = self.observer
        observer.with_gradients = with_gradients
        roots = Roots(self.named, frames, left_out or {}, extra=extra or {}, has_modules=bool(frames))
        early = self._begin_copy()
        try:
            found = observer.observe(roots, seconds=seconds)
        finally:
            if early is not None:
                early.finish()
        layout = self._copy(found, is_copied=early is not None)
        observer.release()
        self._size_bytes = layout.size_bytes
        copies = [data for _, data in layout.copies]
        return CapturedState(
            self._start, found.changes, [*observer.start_leaves, *copies],
            [(buffer.way, buffer.leaf) for buffer in found.copied if buffer.leaf is not None],
            self._size_bytes, found.unkept, found.unknown, observer.start or GraphState(),
        )  # fmt: skip

    def _begin_copy(self) -> _EarlyCopy | None:
        """Begins to copy the memory of the last capture, where that is still there, while the state is looked at."""
        if self._layout is None:
            return None
        held = [held_source(*source) for source in self._sources]
        if any(one is None for one in held):
            return None
        finish = self._layout.begin_copy(self._copier)
        return _EarlyCopy(held, finish) if finish is not None else None

    def _copy(self, found: Observation, *, is_copied: bool) -> Layout:
        """Copies what was found, unless the early copy holds it."""
        key = [(buffer.address, buffer.used_bytes) for buffer in found.copied]
        if self._layout is None or key != self._layout_key:
            leaves = [Leaf(buffer.view()) for buffer in found.copied]
            self._arena.reserve(max_layout_bytes(leaves))
            self._layout, self._layout_key, is_copied = Layout(leaves, self._arena), key, False
        if not is_copied:
            self._layout.copy(self._copier)
            self._sources = [(guard_of(one.source), one.address, one.size_bytes) for one in found.copied]
        return self._layout
