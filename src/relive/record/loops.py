"""What `relive.loop` gives back while recording: the user's items, with each iteration known as a place."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from relive.record.session import Driver, Place, here

if TYPE_CHECKING:
    from relive.checkpoint import LoopWatch

T = TypeVar("T")
MARK_NS = 10_000_000  # iterations that take longer are marked one by one; quicker ones every so often
_now = time.monotonic_ns
_INT32 = range(-(1 << 31), 1 << 31)
_SHOWN_ITEMS = frozenset({int, str, float})  # items of these types are what the loop's column shows


def has_short_range(items: Iterable[Any]) -> bool:
    """Can the items be told by a start and a step of 32 bits?"""
    return type(items) is range and items.start in _INT32 and items.step in _INT32


class LoopKeeper(Driver, Protocol):
    """The driver that is told of each turn of a loop."""

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int: ...
    def note_item(self, loop: int, iteration: int, item: Any) -> None: ...
    def mark(self, loop: int, iteration: int) -> None: ...
    def leave_loop(self, loop: int, iterations: int) -> None: ...
    def watch_loop(self, name: str, loop: int) -> LoopWatch | None: ...
    def begin_turn(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None: ...
    def end_turn(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None: ...
    def end_watch(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None: ...


class RecordedLoop(Generic[T]):
    """Iterates over the items once per `for`; `break`, `return` and exceptions leave the loop as they would any."""

    __slots__ = ("_items", "_name", "_recorder")

    def __init__(self, recorder: LoopKeeper, name: str, items: Iterable[T]) -> None:
        self._recorder = recorder
        self._name = name
        self._items = items

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        recorder, items = self._recorder, self._items
        outside = here.get()
        parent = outside if outside is not None and outside.driver is recorder else recorder.root
        shown: frozenset[type] = frozenset() if has_short_range(items) else _SHOWN_ITEMS
        loop = recorder.enter_loop(self._name, parent, items)
        watch = recorder.watch_loop(self._name, loop)
        place, iteration, marked = None, -1, _now()
        try:
            for iteration, item in enumerate(items):
                place = Place(recorder, loop, iteration, parent)
                here.set(place)
                kind = type(item)
                if kind in shown and (kind is not int or item != iteration):
                    recorder.note_item(loop, iteration, item)
                now = _now()
                if now - marked > MARK_NS:
                    recorder.mark(loop, iteration)
                    marked = now
                if watch is None:
                    yield item
                else:
                    recorder.begin_turn(watch, iteration, sys._getframe(1))
                    yield item
                    recorder.end_turn(watch, iteration, sys._getframe(1))
        finally:
            if watch is not None:
                recorder.end_watch(watch, iteration, sys._getframe(1))
            # Only if nobody moved on: a loop that was left long ago and collected now must not disturb the present.
            if here.get() is place:
                here.set(outside)
            recorder.leave_loop(loop, iteration + 1)

    async def __aiter__(self) -> AsyncIterator[T]:
        recorder = self._recorder
        outside = here.get()
        parent = outside if outside is not None and outside.driver is recorder else recorder.root
        loop = recorder.enter_loop(self._name, parent, ())
        place, iteration = None, -1
        try:
            async for item in self._items:  # type: ignore[attr-defined]
                iteration += 1
                place = Place(recorder, loop, iteration, parent)
                here.set(place)
                recorder.mark(loop, iteration)
                yield item
        finally:
            if here.get() is place:
                here.set(outside)
            recorder.leave_loop(loop, iteration + 1)

    def __getattr__(self, name: str) -> Any:
        # A wrapped DataLoader still answers `.dataset`, `.batch_size`, `.sampler`.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._items, name)
