"""A loop or skipblock of the script as a replay runs it: skipped, visited in part, or run as written."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from relive.checkpoint.state import find_loop_frame
from relive.errors import ReliveError
from relive.hindsight.plan import Visit
from relive.hindsight.workers.segment_driver import SegmentDriver, is_left_normally
from relive.record import Place, RecordedLoop, current_place, how_left
from relive.store.journal import slot_kinds


class Diverged(ReliveError):
    """The script took another path than when it was recorded."""


class ReplayedLoop(RecordedLoop[Any]):
    """Iterates over no items if the loop is skipped, else over those of the visited iterations, else over all."""

    __slots__ = ()
    _recorder: SegmentDriver

    def __iter__(self) -> Iterator[Any]:
        driver = self._recorder
        frame = find_loop_frame(sys._getframe(1), self._made_in)
        outside = current_place.get()
        parent = _parent_place(driver, outside)
        if driver.is_priming:
            yield from itertools.islice(self._items, 1)
            return
        number = driver.peek_loop(self._name, parent)
        driver.observe_entry(number, frame, self._items)
        if number is not None and driver.is_skipped(number):
            yield from self._skip(number, frame, parent)
            return
        driver.stop_before(number)
        visits = driver.visits_of(number) if number is not None else None
        if visits is None:
            yield from self._run_as_written(number)
            if number is not None:
                driver.proof.pass_moment(number, -1, "loop", frame, driver.named_objects(), 0)
            return
        yield from self._visit(visits, parent, outside)

    def _run_as_written(self, number: int | None) -> Iterator[Any]:
        driver = self._recorder
        if number is None or not driver.is_in_doubt(number):
            return super().__iter__()
        watched: RecordedLoop[Any] = RecordedLoop(driver, self._name, _WatchedItems(driver, number, self._items))
        watched._made_in = self._made_in
        return iter(watched)

    def _skip(self, number: int, frame: FrameType | None, parent: Place) -> Iterator[Any]:
        driver, line = self._recorder, 0
        try:
            if driver.needs_priming(self._name, number):
                line = frame.f_lineno if frame is not None else 0
                with driver.priming(parent):
                    yield from itertools.islice(self._items, 1)
        finally:  # the priming iteration may have left the loop, too
            driver.skip(number, frame, line)
            driver.enter_loop(self._name, parent, self._items)
            driver.note_left(number, slot_kinds.LEFT_EXHAUSTED)

    def _visit(self, visits: list[Visit], parent: Place, outside: Place | None) -> Iterator[Any]:
        driver = self._recorder
        number = driver.enter_loop(self._name, parent, self._items)
        cursor = ItemCursor(self._items, driver.progress.note)
        have_all_begun, handled = False, sys.exc_info()[1]
        try:
            if visits[0].restore is not None and driver.needs_priming(self._name, number):
                with driver.priming(parent):
                    yield from self._prime(cursor.take())
            for at, visit in enumerate(visits):
                if not _continues(visit, visits[at - 1] if at else None):
                    # The iterable may log while it advances: into the iteration before, which is not visited.
                    driver.mute(is_restored=driver.is_restored)
                cursor.go_to(visit.iteration)
                if visit.restore is not None:
                    driver.restore(
                        visit.restore, find_loop_frame(sys._getframe(1), self._made_in), driver.named_objects()
                    )
                elif at == 0:
                    driver.note_set_up()
                item = cursor.take()
                driver.unmute()
                user = find_loop_frame(sys._getframe(1), self._made_in)
                driver.outer = (id(user), id(user.f_code), user.f_lineno) if user is not None else None
                self._begin(visit, number, parent)
                have_all_begun = at == len(visits) - 1
                begun = time.perf_counter()
                yield item
                self._end(visit, number, cursor, time.perf_counter() - begun)
            if not visits[-1].passed:
                here = find_loop_frame(sys._getframe(1), self._made_in)
                driver.proof.pass_end(number, visits[-1].iteration, here, driver.named_objects())
            if driver.is_last(number):
                driver.stop()
            driver.note_left(number, slot_kinds.LEFT_EXHAUSTED)
            end = driver.end_manifest(number)
            if end is not None:
                driver.restore(end, find_loop_frame(sys._getframe(1), self._made_in), driver.named_objects())
            have_all_begun = False
        finally:
            driver.progress.leave()
            current_place.set(outside)
            if have_all_begun:
                driver.note_left(number, how_left(sys._getframe(1), self._made_in, handled))
                driver.note_loop_left(number, find_loop_frame(sys._getframe(1), self._made_in))

    def _begin(self, visit: Visit, number: int, parent: Place) -> None:
        driver = self._recorder
        driver.begin_iteration(number, visit.iteration)
        driver.progress.enter(number, visit.iteration)
        current_place.set(Place(driver, number, visit.iteration, parent))
        if visit.counts:
            driver.mark(number, visit.iteration)
        else:
            driver.mute(is_restored=visit.passed)

    def _end(self, visit: Visit, number: int, cursor: ItemCursor, took_s: float) -> None:
        driver = self._recorder
        if visit.warm and not driver.is_restored:
            raise Diverged(
                f"{self._name} {visit.iteration} did not come to the loop that it came to when it was recorded;"
                " replay it with --from-start"
            )
        driver.flush_iteration()
        driver.end_iteration(number, visit.iteration)
        if visit.counts:
            frame = find_loop_frame(sys._getframe(2), self._made_in)
            driver.proof.pass_moment(number, visit.iteration, "iteration", frame, driver.named_objects(), 0)
            cursor.look_ahead()
            driver.note_iteration_end(number, visit.iteration, took_s)
        else:
            driver.unmute()  # values of an iteration that was partly skipped are never reported

    def _prime(self, item: Any) -> Iterator[Any]:
        """The priming iteration of a main loop. A script that leaves the loop in it can't be resumed."""
        is_back = False
        try:
            yield item
            is_back = True
        finally:
            if not is_back and is_left_normally(find_loop_frame(sys._getframe(1), self._made_in)):
                self._recorder.fail(
                    f"{self._name} was left in an iteration that does not count; replay it with --from-start"
                )


class _WatchedItems:
    """The items of a loop whose iterations may go beyond the recorded ones: says when each begins and ends."""

    def __init__(self, driver: SegmentDriver, loop: int, items: Iterable[Any]) -> None:
        self._driver = driver
        self._loop = loop
        self._iterator = iter(items)
        self._next = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._next:
            self._driver.end_iteration(self._loop, self._next - 1)
        item = next(self._iterator)
        self._driver.begin_iteration(self._loop, self._next)
        self._next += 1
        return item


class ReplayedBlock:
    """A skipblock: its code runs only if it holds an added statement, or the state at its end was not kept."""

    def __init__(self, driver: SegmentDriver, name: str) -> None:
        self._driver = driver
        self._name = name
        self._manifest: str | None = None
        self._number = 0
        self._line = 0

    def step_into(self) -> bool:
        driver = self._driver
        parent = _parent_place(driver, current_place.get())
        number = driver.peek_loop(self._name, parent)
        self._number = driver.enter_loop(self._name, parent, ())
        self._manifest = driver.end_manifest(number or 0)
        self._line = sys._getframe(1).f_lineno
        return self._manifest is None

    def end(self, *objects: Any, **named: Any) -> None:
        if self._manifest is not None:
            everything = {str(place): thing for place, thing in enumerate(objects)} | named
            self._driver.restore(self._manifest, sys._getframe(1), everything, line=self._line)
        self._driver.note_left(self._number, slot_kinds.LEFT_EXHAUSTED)


def _parent_place(driver: SegmentDriver, outside: Place | None) -> Place:
    return outside if outside is not None and outside.driver is driver else driver.root


def _continues(visit: Visit, before: Visit | None) -> bool:
    """Whether the iteration right before this one is visited and counts, or there is none."""
    if before is None:
        return visit.iteration == 0
    return before.counts and before.iteration == visit.iteration - 1


class ItemCursor:
    """A position in the items of a loop, of which only some are visited."""

    def __init__(self, items: Iterable[Any], on_item: Callable[[], None] = lambda: None) -> None:
        self._on_item = on_item
        # A range or a list can be indexed; any other iterable may draw random numbers or open files when it advances.
        self._sequence = items if type(items) in (range, list, tuple) else None
        self._iterator = iter(items)
        self._next = 0
        self._ahead: list[Any] | None = None  # the next item, if it was fetched already; empty: there is none

    def go_to(self, number: int) -> None:
        if self._sequence is not None:
            self._next = number
            return
        while self._next < number:
            self.take()

    def look_ahead(self) -> None:
        """Fetches the next item while the iteration before it is still the current one, as a `for` loop does.

        The iterable may log while it produces the item, and those values belong to this iteration, whether the next
        one is visited or not.
        """
        if self._sequence is None and self._ahead is None:
            self._ahead = list(itertools.islice(self._iterator, 1))

    def take(self) -> Any:
        self._on_item()
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is not None:
                item = ahead[0]
            else:
                item = self._sequence[self._next] if self._sequence is not None else next(self._iterator)  # type: ignore[index]
        except (StopIteration, IndexError):
            raise Diverged(
                f"the loop had more than {self._next} iterations when it was recorded; check that its data is the same"
            ) from None
        self._next += 1
        return item
