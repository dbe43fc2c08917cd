"""What `relive.loop` gives back while recording: the user's items, with each iteration known as a place."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from relive.installation import PACKAGE_FOLDER
from relive.record.session import Driver, Place, here

if TYPE_CHECKING:
    from relive.checkpoint.control import LoopWatch

T = TypeVar("T")
# Iterations that take long are marked one by one, quicker ones every so often. After milliseconds of other work a mark
# finds nothing of itself in the caches and costs 40 to 70 µs, so that marking more often would be felt.
LONG_NS, MARK_NS = 30_000_000, 100_000_000
_now = time.monotonic_ns
_INT32 = range(-(1 << 31), 1 << 31)
_SHOWN_ITEMS = frozenset({int, str, float})  # items of these types are what the loop's column shows


def has_short_range(items: Iterable[Any]) -> bool:
    """Can the items be told by a start and a step of 32 bits?"""
    return type(items) is range and items.start in _INT32 and items.step in _INT32


class LoopKeeper(Driver, Protocol):
    """The driver that is told of each iteration of a loop."""

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int: ...
    def note_item(self, loop: int, iteration: int, item: Any) -> None: ...
    def mark(self, loop: int, iteration: int) -> None: ...
    def leave_loop(self, loop: int, iterations: int) -> None: ...
    def watch_loop(self, name: str, loop: int) -> LoopWatch | None: ...
    def begin_iteration(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None: ...
    def end_iteration(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None: ...
    def end_watch(self, watch: LoopWatch, iteration: int, frame: FrameType, *, exhausted: bool) -> None: ...


class RecordedLoop(Generic[T]):
    """Iterates over the items once per `for`; `break`, `return` and exceptions leave the loop as they would any."""

    __slots__ = ("_items", "_made_in", "_name", "_recorder")

    def __init__(self, recorder: LoopKeeper, name: str, items: Iterable[T]) -> None:
        self._recorder = recorder
        self._name = name
        self._items = items
        self._made_in = _users_code(sys._getframe(1))

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        recorder, items = self._recorder, self._items
        outside = here.get()
        parent = _nearest(recorder, outside)
        shown: frozenset[type] = frozenset() if has_short_range(items) else _SHOWN_ITEMS
        loop = recorder.enter_loop(self._name, parent, items)
        watch = recorder.watch_loop(self._name, loop) if getattr(type(items), "is_kept", True) else None
        if watch is not None:
            watch.made_in = self._made_in
        place, iteration = None, -1
        marked = begun = _now()
        held: list[T] = []
        exhausted = False
        try:
            for item in items:
                iteration += 1
                place = Place(recorder, loop, iteration, parent)
                here.set(place)
                kind = type(item)
                if kind in shown and (kind is not int or item != iteration):
                    recorder.note_item(loop, iteration, item)
                now = _now()
                if now - begun > LONG_NS or now - marked > MARK_NS:
                    recorder.mark(loop, iteration)
                    marked = now
                begun = now
                held.append(item)
                del item  # a batch that the script lets go of must not live on here
                if watch is None or (iteration and not watch.is_main):  # of a nested loop only the end matters
                    yield held.pop()
                else:
                    recorder.begin_iteration(watch, iteration, sys._getframe(1))
                    yield held.pop()
                    recorder.end_iteration(watch, iteration, sys._getframe(1))
                now_at = here.get()
                if now_at is not place and not _is_within(now_at, place):
                    # Another loop advanced meanwhile: the two are zipped, or this one outlives its iteration.
                    outside, beside = now_at, _nearest(recorder, now_at)
                    if beside is not parent:
                        recorder.leave_loop(loop, iteration + 1)
                        parent = beside
                        loop = recorder.enter_loop(self._name, parent, items)
            exhausted = True
        finally:
            if watch is not None:
                recorder.end_watch(watch, iteration, sys._getframe(1), exhausted=exhausted)
            _step_out(place, outside)
            recorder.leave_loop(loop, iteration + 1)

    def __aiter__(self) -> AsyncIterator[T]:
        return _AsyncIterations(self._recorder, self._name, self._items)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        # A wrapped DataLoader still answers `.dataset`, `.batch_size`, `.sampler`.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._items, name)


class _AsyncIterations(Generic[T]):
    """The same for `async for`. No generator, because asyncio closes those later and elsewhere, after `break` too."""

    def __init__(self, recorder: LoopKeeper, name: str, items: AsyncIterable[T]) -> None:
        self._recorder = recorder
        self._items = aiter(items)
        self._outside = here.get()
        self._parent = _nearest(recorder, self._outside)
        self._loop = recorder.enter_loop(name, self._parent, ())
        self._place: Place | None = None
        self._iteration = -1
        self._is_left = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            item = await anext(self._items)
        except BaseException:
            self._leave()
            raise
        self._iteration += 1
        self._place = Place(self._recorder, self._loop, self._iteration, self._parent)
        here.set(self._place)
        if type(item) in _SHOWN_ITEMS:
            self._recorder.note_item(self._loop, self._iteration, item)
        self._recorder.mark(self._loop, self._iteration)
        return item

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        if not self._is_left:
            self._is_left = True
            _step_out(self._place, self._outside)
            self._recorder.leave_loop(self._loop, self._iteration + 1)


def _users_code(frame: FrameType | None) -> CodeType | None:
    """The code that asked for a loop: that of the first frame that is not our own."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame = frame.f_back
    return frame.f_code if frame is not None else None


def _nearest(recorder: LoopKeeper, place: Place | None) -> Place:
    """Where a loop of this recorder stands that is entered here."""
    return place if place is not None and place.driver is recorder else recorder.root


def _step_out(place: Place | None, outside: Place | None) -> None:
    """Only if nobody moved on: a loop that was left long ago and collected now must not disturb the present."""
    if place is not None and _is_within(here.get(), place):
        here.set(outside)


def _is_within(place: Place | None, outer: Place | None) -> bool:
    while place is not None and place is not outer:
        place = place.parent
    return place is not None
