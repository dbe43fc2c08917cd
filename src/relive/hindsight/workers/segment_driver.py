"""Executes one segment in a worker: recognises recorded loops, restores checkpoints, and writes the report."""

from __future__ import annotations

import contextlib
import dis
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from relive.checkpoint.io import open_packs
from relive.checkpoint.state import OuterLoop, decode_random_states, restore_random_states
from relive.errors import Damaged
from relive.hindsight.plan import HorizonTracker, Visit
from relive.hindsight.workers.process_exit import end_process
from relive.hindsight.workers.state_proof import StateProof
from relive.hindsight.workers.supervision import ProgressFile
from relive.hindsight.workers.unheld_state import STALE, GradientWatch, OutsideReads, PersistentLoaders
from relive.hindsight.workers.wire import ALWAYS, Job, OutsideRead, WorkerReport
from relive.record import JournalDriver, NullJournal, Place, ProcessMember, current_place, session
from relive.record.provenance import REDACTED, SecretFilter
from relive.store import Home, JournalName
from relive.store.chunks import Chunks
from relive.store.journal import ROOT, Journal, line_schema, slot_kinds

LoopKey = tuple[int, int, str]  # parent, parent's iteration, name
_WAIT_S = 0.05
_STATEMENT_LINES = 20  # that a log statement may span
_COMMUTATIVE_RANKS = 2  # a sum over at most this many ranks does not depend on the order


class SegmentDriver(JournalDriver):
    """Executes one segment of one run. The verbs of the script are in `Replayer`."""

    def __init__(self, job: Job) -> None:
        home = Home(Path(job.home))
        folder = Path(job.folder)
        journal = Journal(folder / JournalName(0).stem, loops_begun=job.last_loop)
        super().__init__(job.run, journal, Chunks(home.chunks), SecretFilter(home.settings.secret_patterns))
        self._job = job
        self.progress = ProgressFile(folder)
        self._packs = open_packs(home)
        self._segment_journal = journal
        self._recorded: dict[LoopKey, list[int]] = {}
        for number, name, parent, iteration in job.loops:
            self._recorded.setdefault((parent, iteration, name), []).append(number)
        self._entered: dict[LoopKey, int] = {}
        self.tracker = (
            HorizonTracker(job.horizon, [row[0] for row in job.loops], job.names) if job.horizon is not None else None
        )
        self._objects: list[dict[str, Any]] = []  # of each `checkpointing` block that is open
        self._left_last = False  # the last visited loop was left by a break: the next verb ends the segment
        self.outer: OuterLoop | None = None
        self.is_restored = True  # the state is the recorded one, although logging may still be muted
        self.is_priming = False
        states = [decode_random_states(one) for one in job.random_states]
        self._random_states = states[0] if states else {}
        self._library_states = {library: state for one in states[1:] for library, state in one.items()}
        self._primed: set[str] = set()
        self._persistent_loaders = PersistentLoaders(self._refuse_stale_loader)
        self._gradients = GradientWatch(self.require_start)
        self.report = WorkerReport(ok=False)
        self._outside: set[tuple[str, int]] = set()
        self.take_opened: Callable[[], None] = lambda: None  # called before a value, a comparison and the report
        if any(REDACTED in word for word in job.argv):
            self.note(f"secrets in the command line were not recorded; the script gets {REDACTED} for them")
        self.proof = StateProof(job, self.chunks, self._packs, self.report, journal.written)
        self.end: Callable[[], None] = self.finish  # called when the script has ended, after its exit handlers
        self._pid, self._parent = os.getpid(), os.getppid()
        self._begun = time.perf_counter()
        journal.line(
            line_schema.ReplayStarted, wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(), parent=0, run=job.run
        )
        os.register_at_fork(after_in_child=ProcessMember(self, folder, 0).become_child)

    # --- loops --------------------------------------------------------------------------------------------------

    def peek_loop(self, name: str, parent: Place) -> int | None:
        """The recorded loop that is entered next under this name, here; None when the run had none."""
        key = parent.loop, parent.iteration, name
        known, at = self._recorded.get(key, []), self._entered.get(key, 0)
        return known[at] if at < len(known) else None

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int:
        self.progress.note()
        number = self.peek_loop(name, parent)
        if number is None:
            return super().enter_loop(name, parent, items)
        key = parent.loop, parent.iteration, name
        self._entered[key] = self._entered.get(key, 0) + 1
        if self.tracker is not None:
            self.check_record(self.tracker.enter_loop(number))
        return number

    def leave_loop(self, loop: int, iterations: int, how: int = slot_kinds.LEFT_UNKNOWN) -> None:
        self.progress.note()
        super().leave_loop(loop, iterations, how)
        self.note_left(loop, how)

    def mark(self, loop: int, iteration: int) -> None:
        self.progress.note()
        self.begin_iteration(loop, iteration)
        super().mark(loop, iteration)

    def watch_loop(self, name: str, loop: int, made_in: CodeType | None, items: Any) -> None:
        """Returns None: a replay takes no checkpoints."""

    def note_item(self, loop: int, iteration: int, item: Any) -> None:
        """Records the items of new loops; those of recorded loops are known."""
        if loop > self._job.last_loop:
            super().note_item(loop, iteration, item)

    def observe_entry(self, loop: int | None, frame: FrameType | None, items: Any) -> None:
        """A loop is about to begin: if it is a main loop, its state is compared with the recorded one from here on."""
        if loop is not None and loop in self._job.mains and self._job.moments:
            visits = self.visits_of(loop)
            is_run = not self.is_skipped(loop) and (visits is None or visits[0].restore is None)
            self.proof.enter_loop(loop, frame, self.named_objects(), items, is_run=is_run)

    def visits_of(self, loop: int) -> list[Visit] | None:
        visits = [visit for visit in self._job.visits if visit.loop == loop]
        return visits or None

    def note_iteration_end(self, loop: int, iteration: int, took_s: float) -> None:
        self.report.iterations_s.append((loop, iteration, took_s))
        self.journal.line(line_schema.IterationReplayed, loop, iteration)

    def is_last(self, loop: int) -> bool:
        """Whether the segment ends after the visits of this loop."""
        return self._job.stop and bool(self._job.visits) and self._job.visits[-1].loop == loop

    def note_loop_left(self, loop: int, frame: FrameType | None) -> None:
        """A visited loop was left by break, return or an exception, after all its visits had begun."""
        self._left_last |= self.is_last(loop)
        if self._left_last and self._job.ranks > 1 and is_left_normally(frame):
            self.stop()  # the next verb may be called by this rank alone, while the others wait for it elsewhere

    def stop_before(self, loop: int | None) -> None:
        """Ends a segment without visits when the first main loop begins: all that is selected lies before it."""
        if self._job.stop and not self._job.visits and loop in self._job.mains:
            if self.tracker is not None and loop is not None:
                self.tracker.enter_loop(loop)
            self.stop()

    # --- the horizon --------------------------------------------------------------------------------------------

    def is_in_doubt(self, loop: int | None) -> bool:
        """Whether the record does not show that all iterations of this loop are complete."""
        return self.tracker is not None and loop is not None and self.tracker.is_in_doubt(loop)

    def begin_iteration(self, loop: int, iteration: int) -> None:
        if self.tracker is not None:
            self.check_record(self.tracker.begin_iteration(loop, iteration))

    def end_iteration(self, loop: int, iteration: int) -> None:
        if self.tracker is not None:
            self.check_record(self.tracker.end_iteration(loop, iteration))

    def note_left(self, loop: int, how: int) -> None:
        """A loop of the script is left."""
        if self.tracker is not None:
            self.check_record(self.tracker.leave_loop(loop, how))

    def check_record(self, is_recorded: bool) -> None:
        """Ends the segment where the recorded run never came, or came by another way.

        Other threads may be ahead of what they did then; only the main thread ends the script.
        """
        if self.tracker is None or self.tracker.is_past or (is_recorded and not self.tracker.is_over):
            return
        if threading.current_thread() is not threading.main_thread():
            return
        self.tracker.go_past()
        self.report.ended_early = self.report.left_record = True
        if not self._job.beyond:
            self.stop()

    def begin_run(self) -> None:
        """The run begins, as it did with the first verb: generators that nobody seeded continue as they did then."""
        states, self._random_states = self._random_states, {}
        restore_random_states(states)

    def _is_in_added_statement(self) -> bool:
        """Whether the verb is called by an added statement: that is not the one with which the run began."""
        frame: FrameType | None = sys._getframe(3)
        while frame is not None and frame.f_code.co_filename not in {file for file, _, _ in self._job.only}:
            frame = frame.f_back
        if frame is None:
            return False
        here = frame.f_code.co_filename, frame.f_lineno
        return any(file == here[0] and 0 <= here[1] - line < _STATEMENT_LINES for file, line, _ in self._job.only)

    def note_generators(self, library: str) -> None:
        """A library was imported: its generators continue as they did when the run imported it."""
        if library in self._library_states:
            restore_random_states({library: self._library_states.pop(library)})

    def _stop_if_left(self, logged: str | None = None) -> None:
        if self._random_states and not (logged in self._job.names and self._is_in_added_statement()):
            self.begin_run()
        if self._left_last:
            self.stop()

    # --- skipping -----------------------------------------------------------------------------------------------

    def is_skipped(self, loop: int | None) -> bool:
        return (loop or 0) in self._job.skips

    def skip(self, loop: int, frame: FrameType | None, line: int) -> None:
        """Restores the state after a loop instead of running it."""
        skip = self._job.skips[loop]
        self.restore(skip.manifest, frame, self.named_objects(), line=line)
        self.is_restored |= skip.unmutes

    def needs_priming(self, name: str, loop: int) -> bool:
        """Whether an iteration must run before the first restore in a loop of this name; asked once for each name.

        DistributedDataParallel assigns gradients to other buckets after its first backward pass, and the rounding of
        a sum over three or more ranks depends on the position in the bucket. Without a backward pass before the
        restore, the first resumed step would differ in the last bits.
        """
        is_passed = loop in self._job.mains and loop in self._job.skips
        if self._job.ranks <= _COMMUTATIVE_RANKS or is_passed or name in self._primed:
            return False
        self._primed.add(name)
        return _uses_ddp()

    @contextlib.contextmanager
    def priming(self, parent: Place) -> Iterator[None]:
        """Mutes an iteration that runs only for its effect on libraries; no loop in it is a recorded one."""
        was, outside = (self.journal, self.is_restored), current_place.get()
        self.mute(is_restored=False)
        self.is_priming = True
        current_place.set(Place(self, -1, 0, parent))
        try:
            yield
        finally:
            current_place.set(outside)
            self.is_priming = False
            self.journal, self.is_restored = was

    def end_manifest(self, loop: int) -> str | None:
        """The state that is restored when a main loop is left early, or a block is skipped."""
        return self._job.ends.get(loop)

    def restore(self, manifest: str, frame: FrameType | None, objects: dict[str, Any], *, line: int = 0) -> None:
        """Puts a checkpoint back into the script; `line` is that of the skipped code, if it isn't the current one."""
        if not self.report.set_up_s:
            self.note_set_up()
        self.progress.note()
        begun = time.perf_counter()
        try:
            with self._packs.shared_lock():
                checkpoint = self.proof.restore(manifest, frame, objects, line)
        except Damaged:
            self.report.damaged.append(manifest)
            raise
        self.progress.note()
        self._persistent_loaders.mark_stale()
        self._gradients.after_restore(has_gradients=checkpoint.graph.has_gradients)
        took_s = time.perf_counter() - begun
        if not self.report.restores:
            self.report.first_restore_s = took_s
        self.report.restores += 1
        self.report.restored_s += took_s
        self.report.restored_bytes += checkpoint.size_bytes

    def named_objects(self) -> dict[str, Any]:
        return self._objects[-1] if self._objects else {}

    def mute(self, *, is_restored: bool) -> None:
        """Discards what is logged from here on, until `unmute`; `is_restored`: the state is the recorded one."""
        self.journal = NullJournal()  # type: ignore[assignment]
        self.is_restored = is_restored

    def unmute(self) -> None:
        self.journal = self._segment_journal

    def _failed(self, slug: str, error: Exception, what: str) -> None:
        """Raises the error: recording never stops a training, but a replay that can't go on must end."""
        raise error

    # --- the end ------------------------------------------------------------------------------------------------

    def note_set_up(self) -> None:
        self.report.set_up_s = time.perf_counter() - self._begun

    def require_start(self, why: str) -> None:
        """Notes why a replay from a checkpoint can't be right, while one from the start can."""
        self.report.needs_start = self.report.needs_start or why

    def watch_outside(self, reads: OutsideReads) -> None:
        """Learns of everything that the script reads outside of its project and that may have changed."""
        self.proof.on_restored = reads.restored
        self.take_opened = self.proof.before_check = reads.take_opened
        reads.start(self.note_outside)

    def note_outside(self, text: str, path: str, is_of_the_run: bool, is_lasting: bool = False) -> None:
        """The script reads a file that may not be what the run saw there; with `is_lasting` it may go on reading it."""
        checks = ALWAYS if is_lasting else len(self.report.checks)
        if (path, checks) not in self._outside:  # a later read since the same comparison says nothing more
            self._outside.add((path, checks))
            position = self._segment_journal.written()
            self.report.outside.append(OutsideRead(text, path, is_of_the_run, position, checks))
        if is_of_the_run and self.report.restores:
            self.require_start(f"it {text}")

    def note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report.notes.append(text)

    def finish(
        self, *, ok: bool = True, is_over: bool = False, error: str = "", traceback: str = "", as_recorded: bool = False
    ) -> None:
        """Closes the journal and writes the report; only then is the segment done.

        `as_recorded`: the script ended as it did when it was recorded.
        """
        if os.getpid() != self._pid:
            return  # a forked child of the script has ended
        self.take_opened()
        if ok and not (self.tracker is not None and self.report.left_record):
            self._flush(None)
        if self.tracker is not None:
            if as_recorded:
                self.tracker.note_recorded_end()
            self.report.unshown = self.tracker.unshown()
        self.journal = self._segment_journal
        if ok and is_over:
            self.journal.line(line_schema.IterationReplayed, ROOT, 0)  # the script ran to its end
        self.journal.close(is_lasting=False)
        self.journal = NullJournal()  # type: ignore[assignment]
        self.report.ok, self.report.error, self.report.traceback = ok, error, traceback
        self.report.ran_s = time.perf_counter() - self._begun
        self.report.write(Path(self._job.folder))

    def flush_iteration(self) -> None:
        """Logs what was held back in the current iteration, which ends."""
        here = current_place.get()
        self._flush(here.parent if here is not None else None)

    def _flush(self, here: Place | None) -> None:
        for flush in session.flushes:
            flush(here)

    def stop(self) -> None:
        """Ends the process after the last visit, without the rest of the script and without its exit handlers."""
        self.finish()
        self.wait_for_others()
        end_process(0)

    def wait_for_others(self) -> None:
        """Waits until the parent ends all ranks together: the other ranks may still need what this one sent."""
        while self._job.ranks > 1 and os.getppid() == self._parent:
            time.sleep(_WAIT_S)

    def _refuse_stale_loader(self) -> None:
        if os.getpid() == self._pid:
            self.report.needs_start = STALE
            self.fail(f"{STALE}; replay it with --from-start")

    def fail(self, error: str) -> None:
        self.finish(ok=False, error=error)
        end_process(1)


def _uses_ddp() -> bool:
    """Whether the script has a DistributedDataParallel module."""
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    return parallel is not None and any(
        issubclass(type(thing), parallel.DistributedDataParallel) for thing in gc.get_objects()
    )


def is_left_normally(frame: FrameType | None) -> bool:
    """Whether a frame drops its iterator because of `break` or `return`, rather than being unwound by an error."""
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("POP_TOP", "POP_ITER")
