"""Takes checkpoints while a run records: loops report their iterations, a background thread writes the state."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import CodeType, FrameType
from typing import Any, Protocol

from msgspec import UNSET

from relive.checkpoint.analysis import is_left_by_break
from relive.checkpoint.control.cost_controller import Block, Ledger, SlowDown
from relive.checkpoint.control.rank_schedule import RankSchedule, SingleRankSchedule
from relive.checkpoint.io import (
    Capture,
    CapturedState,
    CheckpointWriter,
    TrainerState,
    WrittenCheckpoint,
    running_roots,
    unwrapped,
)
from relive.checkpoint.state import (
    OuterLoop,
    find_loop_frame,
    find_user_frame,
    frames_between,
    has_loop_carried_gradients,
)
from relive.errors import ReliveError
from relive.machine import usable_cpu_count
from relive.settings import Settings
from relive.store.journal import line_schema

MAIN_DEPTH, NESTED_DEPTH = 1, 2
_CHEAP_SHARE = 0.25  # of ε: below it, an iteration gets a checkpoint at its end even if a nested loop's end had one
_NESTED_SHARE = 0.5  # of an iteration: if nested loops take more of it, checkpoints belong at their ends
_CONTENTION_SHARE = 0.3  # of the writer's CPU time slows the training down on a spare core: GIL and memory bandwidth
_DIGEST_SHARE = 0.1  # of ε: what digests of the parameters may cost of an iteration
MAX_UNKNOWN = 50  # names in the line of a checkpoint
_WALK_S, _WALK_SHARE = 0.05, 0.01  # least time for looking at the state, and share of the time since the loop began
_END_WALK_S, _END_WALK_SHARE = 1.0, 0.05
_BRIEF_S = 1e-3  # shorter iterations are considered together
_now = time.perf_counter


class LineSink(Protocol):
    """Writes a line to the run's journal."""

    def __call__(self, kind: type[line_schema.JournalLine], loop: int, iteration: int, /, **content: Any) -> None: ...


class Checkpointer:
    """Takes the checkpoints of one `relive.checkpointing` block."""

    def __init__(
        self, objects: dict[str, Any], writer: CheckpointWriter, line: LineSink, *, overhead: float | None,
        every: int | None, schedule: RankSchedule | None = None,
        outside_files: Callable[[], Mapping[str, Sequence[int]]] = dict,
    ) -> None:  # fmt: skip
        """`outside_files`: those that the script wrote outside of the project and that changed since the last call."""
        self._objects = objects
        self._named = {id(obj) for obj in objects.values()}
        # If a library runs the main loop, a replay can't resume inside an iteration.
        self._max_depth = MAIN_DEPTH if any(isinstance(one, TrainerState) for one in objects.values()) else NESTED_DEPTH
        self._capture = Capture(unwrapped(objects), writer.home)
        self._writer = writer
        self._line = line
        self._every = every
        self._outside_files = outside_files
        self._schedule = schedule or SingleRankSchedule()
        self.ledger = Ledger(
            overhead=Settings().overhead if overhead is None else overhead, restore_bytes_per_s=writer.restore_speed()
        )
        self._slow_down = SlowDown()
        self._charged_s: float | None = None  # background cost of the last checkpoint, until its slow-down is charged
        self._wrote_s = 0.0
        self._stalled_s, self._was_writing = 0.0, False  # in the current main-loop iteration
        self._taken_at = 0.0
        self._is_prepared = False
        self._begun = self._loop_begun = _now()
        self._process = os.getpid()
        self._depth = 0
        self._nested_taken_at = -1
        self._nested_s = 0.0  # time of nested loops in the current iteration
        self.main_iteration = -1
        self.main_loop: OuterLoop | None = None
        self.left_out: set[str] = set()
        self.kept: dict[str, dict[str, str]] = {}  # by loop: the entries of its last checkpoint, and their kinds

    # --- reports of loops ---------------------------------------------------------------------------------------

    def enter(
        self,
        name: str,
        loop: int,
        frame: FrameType | None = None,
        created_in: CodeType | None = None,
        items: Any = None,
    ) -> LoopWatch | None:
        """A loop begins; returns the watch that its iterations report to, None if it is nested too deeply."""
        if self._depth >= self._max_depth:
            return None
        watch = LoopWatch(self, name, loop, is_main=self._depth + 1 == MAIN_DEPTH)
        watch.created_in = created_in
        if watch.is_main and not self._is_forked():
            self._observe_start(watch, frame, items)
        self._depth += 1
        return watch

    def _observe_start(self, watch: LoopWatch, frame: FrameType | None, items: Any) -> None:
        """Looks at everything that the script can reach, before the loop changes it."""
        begun = _now()
        user = watch.find_frame(frame)
        roots = running_roots(user, self._objects)
        self._capture.begin(roots.frames, items=items)
        self._loop_begun = _now()
        self.ledger.charge(self._loop_begun - begun)

    def leave(self) -> None:
        self._depth -= 1

    def consider_checkpoint(self, watch: LoopWatch, iteration: int, took_s: float, frame: FrameType | None) -> None:
        """A nested loop or a main-loop iteration ended: takes a checkpoint if it is due."""
        if self._is_forked():
            return
        self._raise_writer_error()
        block = self.ledger.record_execution(watch.block, took_s)
        if watch.is_main:
            self._charge_slow_down(took_s)
        else:
            self._nested_s += took_s
        if self._every is not None:
            self._writer.wait()  # `every` is explicit: waiting is better than skipping a checkpoint
        if self._is_due(watch, iteration, block, took_s) and not self._writer.is_busy:
            self._take_checkpoint(watch, iteration, block, frame)
            if not watch.is_main:
                self._nested_taken_at = watch.parent_iteration
        elif not self._is_prepared:
            self._is_prepared = True
            self._capture.prepare()
        if self._every is None:
            is_worth_it = partial(self._is_worth_it, watch, iteration, block, took_s, is_ahead=True)
            self._schedule.decide_ahead(watch.block, self.main_iteration + 1, is_worth_it)

    def note_digest(self, watch: LoopWatch, iteration: int, took_s: float) -> None:
        """Records a digest of the parameters, where it costs next to nothing beside the iteration."""
        digest = self._capture.observer.memory_digest
        if self._is_forked() or not digest.leaves or digest.cost_s > _DIGEST_SHARE * self.ledger.overhead * took_s:
            return
        found = digest.take()
        if found is not None:
            self._line(line_schema.StateDigest, watch.loop, iteration, digest=found, leaves=digest.leaves)

    def begin_iteration(self, iteration: int) -> None:
        self.main_iteration = iteration
        self._stalled_s, self._was_writing, self._nested_s = 0.0, self._writer.is_busy, 0.0

    def _belongs_to_nested(self, iteration: int, took_s: float) -> bool:
        """Whether the end of a nested loop is the better place: a replay can skip that loop and run the rest quickly.

        If no checkpoint was affordable there, the time saved now pays for one there in a later iteration.
        """
        return self._nested_taken_at == iteration or self._nested_s > _NESTED_SHARE * took_s

    def _charge_slow_down(self, took_s: float) -> None:
        """Charges the slow-down of iterations while the writer worked to its checkpoint."""
        self._slow_down.observe(took_s - self._stalled_s, is_writing=self._was_writing)
        if self._charged_s is not None and not self._writer.is_busy:
            self.ledger.charge_extra(self._slow_down.take_extra_cost(self._charged_s, self._wrote_s))
            self._charged_s = None

    def _raise_writer_error(self) -> None:
        error = self._writer.take_error()
        if error is not None:
            # An upper bound of the cost; otherwise every further attempt would seem free.
            self.ledger.charge(_now() - self._taken_at)
            raise ReliveError(f"a checkpoint could not be written ({error}); free some space") from error

    @property
    def has_fixed_interval(self) -> bool:
        """Whether a checkpoint is taken every N iterations, rather than whenever it is worth it."""
        return self._every is not None

    def is_of(self, objects: dict[str, Any]) -> bool:
        """Whether these are the same objects whose state this checkpointer captures."""
        return {id(obj) for obj in objects.values()} == self._named

    def end_block(self, name: str, loop: int, took_s: float, line: int, frame: FrameType) -> None:
        """A `relive.skipblock`, which is no loop, ended."""
        watch = LoopWatch(self, name, loop, is_main=False)
        watch.line = line
        self._begun = min(self._begun, _now() - took_s)  # the time of the first block pays for its checkpoint
        self.main_iteration += 1
        self.consider_checkpoint(watch, 0, took_s, frame)

    def close(self) -> None:
        """Waits for the checkpoint that is being written."""
        if not self._is_forked():
            self._writer.wait()
            self._capture.release()
            self._raise_writer_error()

    def _is_forked(self) -> bool:
        """Whether this is a forked child: it takes no checkpoints, and the writer's thread does not exist in it."""
        return os.getpid() != self._process

    def finish(self, watch: LoopWatch, iteration: int, frame: FrameType | None) -> None:
        """The main loop is over: always takes a checkpoint of its end, whatever it costs."""
        if self._is_forked():
            return
        self._writer.wait()
        block = self.ledger.blocks.setdefault(f"{watch.name}: end", Block())
        self._take_checkpoint(watch, iteration, block, frame, is_end=True)
        self._writer.wait()
        self._capture.release()
        self._schedule.reset()

    def _is_due(self, watch: LoopWatch, iteration: int, block: Block, took_s: float) -> bool:
        if self._every is not None:
            return (self.main_iteration + 1) % self._every == 0
        is_worth_it = partial(self._is_worth_it, watch, iteration, block, took_s)
        return self._schedule.is_due(watch.block, self.main_iteration, is_worth_it)

    def _is_worth_it(
        self, watch: LoopWatch, iteration: int, block: Block, took_s: float, *, is_ahead: bool = False
    ) -> bool:
        """Whether a checkpoint is worth it now, or, with `is_ahead`, after one more execution of the block."""
        if watch.is_main and self._belongs_to_nested(iteration, took_s) and not self._is_cheap(block):
            return False
        size, elapsed_s, owed_s = self._capture.size_bytes(), _now() - self._begun, 0.0
        if is_ahead:
            if self._writer.is_busy and self._wrote_s > block.mean_s:
                return False  # the writer would still be busy then
            block = Block(block.compute_s + block.mean_s, block.executions + 1, block.checkpoints)
            elapsed_s += block.mean_s
            owed_s = self.ledger.cost_s(size) if self._writer.is_busy else 0.0
        return self.ledger.is_worth_it(block, size_bytes=size, elapsed_s=elapsed_s, owed_s=owed_s)

    def is_agreed(self, watch: LoopWatch) -> bool:
        """Whether the ranks agreed on a checkpoint in the current iteration."""
        return self._schedule.is_agreed(watch.block, self.main_iteration)

    def _is_cheap(self, block: Block) -> bool:
        cost_s = self.ledger.cost_s(self._capture.size_bytes())
        return cost_s < _CHEAP_SHARE * self.ledger.overhead * block.mean_s

    # --- taking a checkpoint ------------------------------------------------------------------------------------

    def _take_checkpoint(
        self, watch: LoopWatch, iteration: int, block: Block, frame: FrameType | None, *, is_end: bool = False
    ) -> None:
        begun = self._taken_at = _now()
        user = find_user_frame(frame)
        captured = self._capture_state(user, watch, is_end=is_end)
        taken_ns = time.time_ns()
        outside = {path: list(times) for path, times in self._outside_files().items()}
        left_around: list[str] = []
        if (
            user is not None
            and not watch.is_main
            and self.main_loop is not None
            and not frames_between(user, self.main_loop)
        ):
            left_around = ["the loop around it is too many calls away to be restored"]
        stall_s = _now() - begun
        self._stalled_s, self._was_writing = self._stalled_s + stall_s, True
        block.checkpoints += 1
        self.left_out.update(captured.uncaptured)
        place = "end" if is_end else "iteration" if watch.is_main else "loop"

        def on_written(written: WrittenCheckpoint) -> None:
            background_s = self._background_cost_s(written)
            self.ledger.charge(stall_s + background_s)
            self._charged_s, self._wrote_s = background_s, written.took_s
            self.kept[watch.name] = captured.changed_names()
            self._line(
                line_schema.CheckpointTaken, watch.loop, max(iteration, 0), place=place, name=watch.name,
                manifest=written.manifest, bytes=written.size_bytes, new_bytes=written.new_bytes, stall_s=stall_s,
                write_s=written.took_s,
                left_out=captured.uncaptured, exhausted=watch.is_exhausted, plainly=watch.falls_through,
                left_around=left_around, unknown=captured.unknown[:MAX_UNKNOWN],
                taken_ns=taken_ns, outside=outside or UNSET,
            )  # fmt: skip

        self._writer.begin(captured, on_written)

    def _background_cost_s(self, written: WrittenCheckpoint) -> float:
        """Returns the time that the training lost to the writer's thread, as far as it is known now.

        If all cores are busy, that is the CPU time of the thread. If iterations turn out to be slowed down by more, the
        difference is charged later; while the slow-down can't be known, the worst case is charged.
        """
        if has_spare_core():
            return written.cpu_s * (_CONTENTION_SHARE if self._slow_down.is_known else 1.0)
        return written.cpu_s if self._slow_down.is_known else max(written.cpu_s, written.took_s)

    def _capture_state(self, user: FrameType | None, watch: LoopWatch, *, is_end: bool) -> CapturedState:
        roots = running_roots(user, self._objects, watch.line)
        least, share = (_END_WALK_S, _END_WALK_SHARE) if is_end else (_WALK_S, _WALK_SHARE)
        return self._capture.take(
            frames=roots.frames, left_out=roots.left_out, with_gradients=is_end or has_loop_carried_gradients(),
            seconds=max(least, share * (_now() - self._loop_begun)),
        )  # fmt: skip


def has_spare_core() -> bool:
    """Whether the training leaves a core idle."""
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else 1
    return bool(threads < usable_cpu_count())


class LoopWatch:
    """Watches one loop inside a `checkpointing` block, and times its iterations."""

    def __init__(self, owner: Checkpointer, name: str, loop: int, *, is_main: bool) -> None:
        self._owner = owner
        self.name = name
        self.loop = loop
        self.is_main = is_main
        self.block = f"{name}: iteration" if is_main else f"{name}: loop"
        self.line = 0
        self.is_exhausted = False  # otherwise it was left by a break, a return or an exception
        self.falls_through = True  # execution continues with the statement after the loop
        self.created_in: CodeType | None = None  # the code that created the loop
        self.parent_iteration = owner.main_iteration
        self._iteration_begun = self._begun = self._last_considered = _now()

    def begin_iteration(self, iteration: int, frame: FrameType | None) -> None:
        self._iteration_begun = _now()
        if self.is_main:
            self._owner.begin_iteration(iteration)
        if not self.line and (user := self.find_frame(frame)) is not None:
            self.line = user.f_lineno
            if self.is_main:
                self._owner.main_loop = id(user), id(user.f_code), user.f_lineno

    def end_iteration(self, iteration: int, frame: FrameType | None) -> None:
        # Brief iterations are considered together: deciding would take longer than they do.
        is_brief = _now() - self._last_considered <= _BRIEF_S
        if self.is_main and (not is_brief or self._owner.has_fixed_interval or self._owner.is_agreed(self)):
            self._owner.consider_checkpoint(self, iteration, _now() - self._iteration_begun, self.find_frame(frame))
            self._last_considered = _now()
            self._owner.note_digest(self, iteration, self._last_considered - self._iteration_begun)

    def end(self, iteration: int, frame: FrameType | None, *, exhausted: bool) -> None:
        """The loop is over: its items are exhausted, or it was left."""
        self.is_exhausted = exhausted
        user = self.find_frame(frame)
        if not self.line and user is not None:
            self.line = user.f_lineno  # the loop had no iteration
        self.falls_through = exhausted or (user is not None and is_left_by_break(user, self.line))
        self._owner.leave()
        if self.is_main:
            self._owner.finish(self, iteration, user)
        else:
            self._owner.consider_checkpoint(self, iteration, _now() - self._begun, user)

    def find_frame(self, frame: FrameType | None) -> FrameType | None:
        return find_loop_frame(frame, self.created_in) if self.created_in is not None else find_user_frame(frame)
