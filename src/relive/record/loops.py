"""What `relive.loop` returns while recording: yields the user's items and sets the current place for each one."""

from __future__ import annotations

import opcode
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, Generic, Protocol, TypeVar

from relive.installation import PACKAGE_FOLDER
from relive.record.session import Driver, Place, current_place
from relive.store.journal import slot_kinds

T = TypeVar("T")
# Each long iteration is marked; short ones are marked at intervals. After milliseconds of other work the CPU caches are
# cold and a mark costs 40 to 70 µs, so marking more often would slow training down.
LONG_ITERATION_NS, MARK_INTERVAL_NS = 30_000_000, 100_000_000
_now = time.monotonic_ns
_INT32 = range(-(1 << 31), 1 << 31)
_ITEM_TYPES = frozenset({int, str, float})  # items of these types are shown in the column of the loop
_GENERATOR = 0x20  # the flag of code objects, as in `inspect`, which takes long to import
_LEAVING_OPERATIONS = ("POP_TOP", "POP_ITER", "END_FOR")  # of `break` and `return`
_DROPPING_OPERATIONS = ("FOR_ITER", "STORE", "DELETE", "RETURN", "YIELD", "RESUME", "SEND")  # or dropped there, too


def is_int32_range(items: Iterable[Any]) -> bool:
    """Whether the items are a range whose start and step fit into 32 bits each."""
    return type(items) is range and items.start in _INT32 and items.step in _INT32


class IterationWatch(Protocol):
    """Takes checkpoints of a loop."""

    is_main: bool

    def begin_iteration(self, iteration: int, frame: FrameType) -> None: ...
    def end_iteration(self, iteration: int, frame: FrameType) -> None: ...
    def end(self, iteration: int, frame: FrameType | None, *, exhausted: bool) -> None: ...


class LoopDriver(Driver, Protocol):
    """A driver that records the iterations of loops."""

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int: ...
    def note_item(self, loop: int, iteration: int, item: Any) -> None: ...
    def mark(self, loop: int, iteration: int) -> None: ...
    def leave_loop(self, loop: int, iterations: int, how: int = ...) -> None: ...
    def watch_loop(self, name: str, loop: int, made_in: CodeType | None, items: Any) -> IterationWatch | None: ...


class RecordedLoop(Generic[T]):
    """Iterates over the items once per `for`; `break`, `return` and exceptions work as in any loop."""

    __slots__ = ("_items", "_made_in", "_name", "_recorder")

    def __init__(self, recorder: LoopDriver, name: str, items: Iterable[T]) -> None:
        self._recorder = recorder
        self._name = name
        self._items = items
        self._made_in = _users_code(sys._getframe(1))

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        recorder, items = self._recorder, self._items
        outside = current_place.get()
        parent = _parent_place(recorder, outside)
        item_types: frozenset[type] = frozenset() if is_int32_range(items) else _ITEM_TYPES
        loop = recorder.enter_loop(self._name, parent, items)
        is_watched = getattr(type(items), "has_checkpoints", True)
        watch = recorder.watch_loop(self._name, loop, self._made_in, items) if is_watched else None
        place, iteration = None, -1
        marked = begun = _now()
        pending_item: list[T] = []
        exhausted, handled = False, sys.exc_info()[1]
        try:
            for item in items:
                iteration += 1
                place = Place(recorder, loop, iteration, parent)
                current_place.set(place)
                kind = type(item)
                if kind in item_types and (kind is not int or item != iteration):
                    recorder.note_item(loop, iteration, item)
                now = _now()
                if now - begun > LONG_ITERATION_NS or now - marked > MARK_INTERVAL_NS:
                    recorder.mark(loop, iteration)
                    marked = now
                begun = now
                pending_item.append(item)
                del item  # keep no reference: a batch that the script drops must be freed
                if watch is None or (iteration and not watch.is_main):  # a nested loop only needs its end state
                    yield pending_item.pop()
                else:
                    watch.begin_iteration(iteration, sys._getframe(1))
                    yield pending_item.pop()
                    watch.end_iteration(iteration, sys._getframe(1))
                place_now = current_place.get()
                if place_now is not place and not _is_within(place_now, place):
                    # Another loop advanced meanwhile: the two are zipped, or this one outlives its iteration.
                    outside, new_parent = place_now, _parent_place(recorder, place_now)
                    if new_parent is not parent:
                        recorder.leave_loop(loop, iteration + 1)
                        parent = new_parent
                        loop = recorder.enter_loop(self._name, parent, items)
            exhausted = True
        finally:
            frame = sys._getframe(0).f_back  # None if the interpreter ends
            if watch is not None:
                watch.end(iteration, frame, exhausted=exhausted)
            _restore_place(place, outside)
            how = slot_kinds.LEFT_EXHAUSTED if exhausted else how_left(frame, self._made_in, handled)
            del frame
            recorder.leave_loop(loop, iteration + 1, how)

    def __aiter__(self) -> AsyncIterator[T]:
        return _AsyncIterations(self._recorder, self._name, self._items)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        # A wrapped DataLoader still has `.dataset`, `.batch_size`, `.sampler`.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._items, name)


class _AsyncIterations(Generic[T]):
    """The same for `async for`. Not a generator: after `break`, asyncio closes those later and in another task."""

    def __init__(self, recorder: LoopDriver, name: str, items: AsyncIterable[T]) -> None:
        self._recorder = recorder
        self._items = aiter(items)
        self._outside = current_place.get()
        self._parent = _parent_place(recorder, self._outside)
        self._loop = recorder.enter_loop(name, self._parent, ())
        self._place: Place | None = None
        self._iteration = -1
        self._is_left = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            item = await anext(self._items)
        except StopAsyncIteration:
            self._leave(slot_kinds.LEFT_EXHAUSTED)
            raise
        except BaseException:
            self._leave(slot_kinds.LEFT_BY_ERROR)
            raise
        self._iteration += 1
        self._place = Place(self._recorder, self._loop, self._iteration, self._parent)
        current_place.set(self._place)
        if type(item) in _ITEM_TYPES:
            self._recorder.note_item(self._loop, self._iteration, item)
        self._recorder.mark(self._loop, self._iteration)
        return item

    def __del__(self) -> None:
        self._leave()

    def _leave(self, how: int = slot_kinds.LEFT_UNKNOWN) -> None:
        if not self._is_left:
            self._is_left = True
            _restore_place(self._place, self._outside)
            self._recorder.leave_loop(self._loop, self._iteration + 1, how)


def how_left(frame: FrameType | None, made_in: CodeType | None, handled: BaseException | None) -> int:
    """How a loop is left before its items are exhausted; call while its generator is being closed.

    `frame` is the caller of the generator, and `handled` the exception that was handled when the loop began. An error
    that passes through the user's code drops the iterator without `break`: the current instruction tells.
    """
    error = sys.exc_info()[1]
    if not isinstance(error, GeneratorExit):
        return slot_kinds.LEFT_BY_ERROR
    if error.__context__ is not None and error.__context__ is not handled:
        return slot_kinds.LEFT_BY_ERROR
    while frame is not None and frame.f_code is not made_in and frame.f_code.co_flags & _GENERATOR:
        frame = frame.f_back  # a progress bar, or a generator that passes the items on
    if frame is None:
        return slot_kinds.LEFT_UNKNOWN
    if frame.f_code.co_filename.startswith(PACKAGE_FOLDER):  # closed by a hook, outside of any error
        return slot_kinds.LEFT_BY_CODE
    operation = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    if operation in _LEAVING_OPERATIONS:
        return slot_kinds.LEFT_BY_CODE
    return slot_kinds.LEFT_UNKNOWN if operation.startswith(_DROPPING_OPERATIONS) else slot_kinds.LEFT_BY_ERROR


def _users_code(frame: FrameType | None) -> CodeType | None:
    """Returns the code object of the first frame outside of relive: the code that created the loop."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        frame = frame.f_back
    return frame.f_code if frame is not None else None


def _parent_place(recorder: LoopDriver, place: Place | None) -> Place:
    """Returns the parent of a loop that this recorder enters at the given place."""
    return place if place is not None and place.driver is recorder else recorder.root


def _restore_place(place: Place | None, outside: Place | None) -> None:
    """Sets the current place back to `outside`, unless another loop has moved it.

    A loop that was left long ago and is garbage-collected now must not change the current place.
    """
    if place is not None and _is_within(current_place.get(), place):
        current_place.set(outside)


def _is_within(place: Place | None, outer: Place | None) -> bool:
    """Whether a place is `outer` or nested inside it."""
    while place is not None and place is not outer:
        place = place.parent
    return place is not None
