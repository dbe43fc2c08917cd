"""The driver of a replay: skips what a checkpoint holds, runs what is asked for, and logs beside the run."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from relive.checkpoint.io import Checkpoint, packs_of, put_back
from relive.checkpoint.state import Outer, loops_frame
from relive.errors import Damaged
from relive.hindsight.plan import Visit
from relive.hindsight.workers.process_exit import end_process
from relive.hindsight.workers.replayed_items import Diverged, Items, follows, has_buckets, is_dropping
from relive.hindsight.workers.wire import Job, WorkerReport
from relive.record import NullJournal, Place, ProcessMember, RecordedLoop, Recorder, here
from relive.store import Home, JournalName
from relive.store.chunks import Chunks
from relive.store.journal import ROOT, Journal, decode_value

LoopKey = tuple[int, int, str]
_WAIT_S = 0.05
COMMUTING = 2  # so many ranks add up to the same in whatever order


class Replayer(Recorder):
    """Replays one segment of one run."""

    def __init__(self, job: Job) -> None:
        home = Home(Path(job.home))
        folder = Path(job.folder)
        journal = Journal(folder / JournalName(0).stem, loops_begun=job.last_loop)
        super().__init__(job.run, journal, Chunks(home.chunks))
        self._job = job
        self._packs = packs_of(home)
        self._real = journal
        self._recorded: dict[LoopKey, list[int]] = {}
        for number, name, parent, iteration in job.loops:
            self._recorded.setdefault((parent, iteration, name), []).append(number)
        self._entered: dict[LoopKey, int] = {}
        self._objects: list[dict[str, Any]] = []
        self._args = job.args
        self._left_last = False  # the last wanted loop was left by a break: the next verb ends the segment
        self.outer: Outer | None = None
        self.is_restored = True  # the state is the recorded one, although nothing may be logged yet
        self.is_breaking_in = False
        self._broken_in: set[str] = set()
        self.report = WorkerReport(ok=False)
        self._pid, self._parent = os.getpid(), os.getppid()
        self._begun = time.perf_counter()
        journal.line("replay", wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(), parent=0, run=job.run)
        os.register_at_fork(after_in_child=ProcessMember(self, folder, 0).become_child)

    # --- verbs --------------------------------------------------------------------------------------------------

    def _logger(self, journal: Journal) -> Callable[[str, Any, Place], Any]:
        write = super()._logger(journal)

        def log(name: str, value: Any, place: Place) -> Any:
            self._stop_if_left()
            return write(name, value, place)

        return log

    def arg(self, name: str, default: Any) -> Any:
        """The value that the run had, whatever the default is now."""
        self._stop_if_left()
        if name not in self._args:
            return default
        form = self._args[name]
        if isinstance(form, dict) and "$secret" in form:
            self.note(f"the arg {name!r} is secret and was not recorded; its default was used")
            return default
        return decode_value(form, self.chunks.get)

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """The run has it already."""

    @property
    def is_checkpointing(self) -> bool:
        return bool(self._objects)

    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        self._stop_if_left()
        return ReplayedLoop(self, name, items)

    def data(self, name: str, source: Any, *, etag: str | None) -> Any:
        return source

    def artifact(self, source: Any, *, name: str | None) -> Any:
        self._stop_if_left()
        return source

    @contextlib.contextmanager
    def checkpointing(self, objects: dict[str, Any], *, overhead: float | None, every: int | None) -> Iterator[None]:
        self._objects.append(objects)
        try:
            yield
            self._stop_if_left()
        finally:
            self._objects.pop()

    def skipblock(self, name: str) -> Any:
        return ReplayedBlock(self, name)

    # --- loops --------------------------------------------------------------------------------------------------

    def peek(self, name: str, parent: Place) -> int | None:
        """The recorded loop that is entered next under this name, here; None when the run had none."""
        key = parent.loop, parent.iteration, name
        known, at = self._recorded.get(key, []), self._entered.get(key, 0)
        return known[at] if at < len(known) else None

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int:
        number = self.peek(name, parent)
        if number is None:
            return super().enter_loop(name, parent, items)
        key = parent.loop, parent.iteration, name
        self._entered[key] = self._entered.get(key, 0) + 1
        return number

    def watch_loop(self, name: str, loop: int) -> None:
        return None

    def note_item(self, loop: int, iteration: int, item: Any) -> None:
        """Items of recorded loops are known; those of new ones count."""
        if loop > self._job.last_loop:
            super().note_item(loop, iteration, item)

    def visits_of(self, loop: int) -> list[Visit] | None:
        visits = [visit for visit in self._job.visits if visit.loop == loop]
        return visits or None

    def iteration_ended(self, loop: int, iteration: int, took_s: float) -> None:
        self.report.iterations_s.append((loop, iteration, took_s))
        self.journal.line("turn", loop, iteration)

    def is_last(self, loop: int) -> bool:
        """Is this the loop after whose visits nothing more is wanted?"""
        return self._job.stop and bool(self._job.visits) and self._job.visits[-1].loop == loop

    def left(self, loop: int, frame: FrameType | None) -> None:
        """A visited loop was left by break, return or exception when all its visits were begun."""
        self._left_last |= self.is_last(loop)
        if self._left_last and self._job.ranks > 1 and is_dropping(frame):
            self.stop()  # the next verb may be one of this rank alone, when the others wait for it elsewhere

    def stop_before(self, loop: int | None) -> None:
        """Nothing is visited, and the first main loop begins: what is wanted lies before it."""
        if self._job.stop and not self._job.visits and loop in self._job.mains:
            self.stop()

    # --- skipping -----------------------------------------------------------------------------------------------

    def is_skipped(self, loop: int | None) -> bool:
        return (loop or 0) in self._job.skips

    def skip(self, loop: int, frame: FrameType | None, line: int) -> None:
        """Bring what a loop left, instead of running it."""
        skip = self._job.skips[loop]
        outer = self.outer if loop not in self._job.mains else None
        self.restore(skip.manifest, frame, self.named(), outer=outer, warm=not self.is_restored, line=line)
        self.is_restored |= skip.unmutes

    def is_raw(self, name: str, loop: int) -> bool:
        """Must an iteration that does not count run before a state is restored here? Once for each loop name."""
        is_passed = loop in self._job.mains and loop in self._job.skips
        if self._job.ranks <= COMMUTING or is_passed or name in self._broken_in:
            return False
        self._broken_in.add(name)
        return has_buckets()

    @contextlib.contextmanager
    def breaking_in(self, parent: Place) -> Iterator[None]:
        """While an iteration is run for what libraries make of it: no value counts, and no loop is a recorded one."""
        was, outside = (self.journal, self.is_restored), here.get()
        self.mute(is_restored=False)
        self.is_breaking_in = True
        here.set(Place(self, -1, 0, parent))
        try:
            yield
        finally:
            here.set(outside)
            self.is_breaking_in = False
            self.journal, self.is_restored = was

    def end_of(self, loop: int) -> str | None:
        """The end that is restored when a loop is left early, or a block is skipped."""
        return self._job.ends.get(loop)

    def restore(
        self, manifest: str, frame: FrameType | None, objects: dict[str, Any], *, outer: Outer | None = None,
        warm: bool = False, line: int = 0,
    ) -> None:  # fmt: skip
        """Bring the script to a recorded state; `line` is that of the skipped code, if it isn't the current one.

        `outer` is the loop around a nested one; `warm` says that its iteration ran without counting so far.
        """
        if not self.report.set_up_s:
            self.set_up()
        begun = time.perf_counter()
        try:
            with self._packs.shared():
                checkpoint = Checkpoint(manifest, self.chunks, self._packs)
                missing = put_back(checkpoint, frame, objects, outer=outer, line=line, is_warm=warm)
        except Damaged:
            self.report.damaged.append(manifest)
            raise
        self.report.unrestored += [name for name in missing if name not in self.report.unrestored]
        took_s = time.perf_counter() - begun
        if not self.report.restores:
            self.report.first_restore_s = took_s
        self.report.restores += 1
        self.report.restored_s += took_s
        self.report.restored_bytes += checkpoint.size_bytes

    def named(self) -> dict[str, Any]:
        return self._objects[-1] if self._objects else {}

    def mute(self, *, is_restored: bool) -> None:
        """From here on nothing counts, until the iteration is over; the state may have to be made true first."""
        self.journal = NullJournal()  # type: ignore[assignment]
        self.is_restored = is_restored

    def unmute(self) -> None:
        self.journal = self._real

    def _failed(self, slug: str, error: Exception) -> None:
        """While recording, training goes on whatever fails; a replay that can't go on says so."""
        raise error

    # --- the end ------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        self.report.set_up_s = time.perf_counter() - self._begun

    def note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report.notes.append(text)

    def finish(self, *, ok: bool = True, is_over: bool = False, error: str = "", traceback: str = "") -> None:
        """Close the journal and leave the report; only then does the segment count as done."""
        if os.getpid() != self._pid:
            return  # a child of the script that came to its end
        self.journal = self._real
        if ok and is_over:
            self.journal.line("turn", ROOT, 0)  # the script ran to its end
        self.journal.close(is_lasting=False)
        self.journal = NullJournal()  # type: ignore[assignment]
        self.report.ok, self.report.error, self.report.traceback = ok, error, traceback
        self.report.ran_s = time.perf_counter() - self._begun
        self.report.write(Path(self._job.folder))

    def stop(self) -> None:
        """All is visited. What the script would do now is not wanted: not its output, nor its handlers at exit."""
        self.finish()
        self.wait_for_others()
        end_process(0)

    def wait_for_others(self) -> None:
        """A rank that is done stays until all are: they may still need what it sent. Who started us ends us then."""
        while self._job.ranks > 1 and os.getppid() == self._parent:
            time.sleep(_WAIT_S)

    def fail(self, error: str) -> None:
        self.finish(ok=False, error=error)
        end_process(1)

    def _stop_if_left(self) -> None:
        if self._left_last:
            self.stop()


class ReplayedLoop(RecordedLoop[Any]):
    """The items of a loop: none if it is skipped, those of the visited iterations, or all."""

    __slots__ = ()
    _recorder: Replayer

    def __iter__(self) -> Iterator[Any]:
        replayer = self._recorder
        frame = loops_frame(sys._getframe(1), self._made_in)
        outside = here.get()
        parent = outside if outside is not None and outside.driver is replayer else replayer.root
        if replayer.is_breaking_in:
            yield from itertools.islice(self._items, 1)
            return
        number = replayer.peek(self._name, parent)
        if number is not None and replayer.is_skipped(number):
            yield from self._skipped(number, frame, parent)
            return
        replayer.stop_before(number)
        visits = replayer.visits_of(number) if number is not None else None
        if visits is None:
            yield from super().__iter__()
            return
        yield from self._visited(visits, parent, outside)

    def _skipped(self, number: int, frame: FrameType | None, parent: Place) -> Iterator[Any]:
        replayer, line = self._recorder, 0
        try:
            if replayer.is_raw(self._name, number):
                line = frame.f_lineno if frame is not None else 0
                with replayer.breaking_in(parent):
                    yield from itertools.islice(self._items, 1)
        finally:  # that iteration may have left the loop, too
            replayer.skip(number, frame, line)
            replayer.enter_loop(self._name, parent, self._items)

    def _visited(self, visits: list[Visit], parent: Place, outside: Place | None) -> Iterator[Any]:
        replayer = self._recorder
        number = replayer.enter_loop(self._name, parent, self._items)
        items = Items(self._items)
        begun_all = False
        try:
            if visits[0].restore is not None and replayer.is_raw(self._name, number):
                with replayer.breaking_in(parent):
                    yield from self._broken_in(items.take())
            for at, visit in enumerate(visits):
                if not follows(visit, visits[at - 1] if at else None):
                    # What makes the items may log, too: into the iteration before, which is none of ours.
                    replayer.mute(is_restored=replayer.is_restored)
                items.go_to(visit.iteration)
                if visit.restore is not None:
                    replayer.restore(visit.restore, loops_frame(sys._getframe(1), self._made_in), replayer.named())
                elif at == 0:
                    replayer.set_up()
                item = items.take()
                replayer.unmute()
                user = loops_frame(sys._getframe(1), self._made_in)
                replayer.outer = (id(user), id(user.f_code), user.f_lineno) if user is not None else None
                here.set(Place(replayer, number, visit.iteration, parent))
                if visit.counts:
                    replayer.mark(number, visit.iteration)
                else:
                    replayer.mute(is_restored=visit.passed)
                begun_all = at == len(visits) - 1
                begun = time.perf_counter()
                yield item
                if visit.warm and not replayer.is_restored:
                    raise Diverged(
                        f"{self._name} {visit.iteration} did not come to the loop that it came to when it was recorded;"
                        " replay it with --from-start"
                    )
                if visit.counts:
                    items.look_ahead()
                    replayer.iteration_ended(number, visit.iteration, time.perf_counter() - begun)
                else:
                    replayer.unmute()  # an iteration of which half was not run right has no values of its own
            if replayer.is_last(number):
                replayer.stop()
            end = replayer.end_of(number)
            if end is not None:
                replayer.restore(end, loops_frame(sys._getframe(1), self._made_in), replayer.named())
            begun_all = False
        finally:
            here.set(outside)
            if begun_all:
                replayer.left(number, loops_frame(sys._getframe(1), self._made_in))

    def _broken_in(self, item: Any) -> Iterator[Any]:
        """An iteration of a main loop that does not count. Whoever leaves the loop in it can't be brought back."""
        is_back = False
        try:
            yield item
            is_back = True
        finally:
            if not is_back and is_dropping(loops_frame(sys._getframe(1), self._made_in)):
                self._recorder.fail(
                    f"{self._name} was left in an iteration that does not count; replay it with --from-start"
                )


class ReplayedBlock:
    """A skipblock: its code runs only if it holds what is asked for, or its end was not kept."""

    def __init__(self, replayer: Replayer, name: str) -> None:
        self._replayer = replayer
        self._name = name
        self._manifest: str | None = None
        self._line = 0

    def step_into(self) -> bool:
        replayer = self._replayer
        place = here.get()
        parent = place if place is not None and place.driver is replayer else replayer.root
        number = replayer.peek(self._name, parent)
        replayer.enter_loop(self._name, parent, ())
        self._manifest = replayer.end_of(number or 0)
        self._line = sys._getframe(1).f_lineno
        return self._manifest is None

    def end(self, *objects: Any, **named: Any) -> None:
        if self._manifest is not None:
            everything = {str(place): thing for place, thing in enumerate(objects)} | named
            self._replayer.restore(self._manifest, sys._getframe(1), everything, line=self._line)
