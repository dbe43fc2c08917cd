"""When and of what a checkpoint is taken while a run records: the loops report to it, the writer works for it."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from types import CodeType, FrameType
from typing import Any, Protocol

from relive.checkpoint.analysis import falls_through
from relive.checkpoint.control.controller import DEFAULT_OVERHEAD, Block, Ledger, SlowDown
from relive.checkpoint.control.rank_schedule import RankSchedule, SingleRankSchedule
from relive.checkpoint.io import (
    AROUND,
    GRADIENTS,
    NEAR,
    RANDOM,
    UNKEPT,
    VARIABLES,
    Capture,
    CapturedState,
    Writer,
    Written,
)
from relive.checkpoint.memory import is_plain
from relive.checkpoint.state import (
    ModulePartsCache,
    Outer,
    StateHandler,
    TrainerState,
    global_states,
    gradients_of,
    gradients_outlive,
    handler_for,
    loops_frame,
    lost_around,
    lost_variables,
    near,
    unkept,
    users_frame,
    variables,
    variables_around,
)
from relive.errors import ReliveError

MAIN_DEPTH, NESTED_DEPTH = 1, 2
_CHEAP = 0.25  # of what ε allows for an iteration: then its end is kept even if a nested loop's end was
_MOST = 0.5  # of an iteration: nested loops that take more of it are where its checkpoints belong
_BESIDE = 0.3  # of what the writer uses beside the training is felt by it: Python's lock, and the memory they share
_BRIEF_S = 1e-3
_now = time.perf_counter


class LineSink(Protocol):
    """Writes a line to the run's journal."""

    def __call__(self, kind: str, loop: int, iteration: int, /, **content: Any) -> None: ...


class Checkpointer:
    """The checkpoints of one `relive.checkpointing` block."""

    def __init__(
        self, objects: dict[str, Any], writer: Writer, line: LineSink, *, overhead: float | None,
        every: int | None, moments: RankSchedule | None = None,
    ) -> None:  # fmt: skip
        self._subjects: dict[str, StateHandler] = {name: handler_for(name, thing) for name, thing in objects.items()}
        self._objects = objects
        self._modules = ModulePartsCache()
        self._named = {id(thing) for thing in objects.values()}
        # Where a library runs the loop, what is inside an iteration has no place to be entered.
        self._deepest = MAIN_DEPTH if any(isinstance(one, TrainerState) for one in objects.values()) else NESTED_DEPTH
        self._capture = Capture(dict(self._subjects))
        self._known = {id(thing): name for name, thing in objects.items() if not is_plain(thing)}
        self._capture.known = dict(self._known)
        self._writer = writer
        self._line = line
        self._every = every
        self._moments = moments or SingleRankSchedule()
        allowed = DEFAULT_OVERHEAD if overhead is None else overhead
        self.ledger = Ledger(overhead=allowed, restore_bytes_per_s=writer.restore_speed())
        self._slow_down = SlowDown()
        self._charged_s: float | None = None  # for the work of the writer, until what it slowed down is settled
        self._wrote_s = 0.0
        self._stalled_s, self._was_writing = 0.0, False  # in this iteration of the main loop
        self._taken_at = 0.0
        self._is_prepared = False
        self._begun = _now()
        self._process = os.getpid()
        self._depth = 0
        self._nested_taken_at = -1
        self._nested_s = 0.0  # of the current iteration
        self.main_iteration = -1
        self.main_loop: Outer | None = None
        self.left_out: set[str] = set()
        self.kept: dict[str, dict[str, str]] = {}  # what the last checkpoint of each loop holds, and of which kind

    # --- what loops report --------------------------------------------------------------------------------------

    def enter(self, name: str, loop: int) -> LoopWatch | None:
        """A loop begins; gives who is to be told of its iterations, if it is one that matters."""
        if self._depth >= self._deepest:
            return None
        self._depth += 1
        return LoopWatch(self, name, loop, is_main=self._depth == MAIN_DEPTH)

    def leave(self) -> None:
        self._depth -= 1

    def consider(self, watch: LoopWatch, iteration: int, took_s: float, frame: FrameType | None) -> None:
        """A nested loop or an iteration of the main loop ended: take a checkpoint if it is worth it."""
        if self._is_forked():
            return
        self._tell_trouble()
        block = self.ledger.executed(watch.block, took_s)
        if watch.is_main:
            self._observe(took_s)
        else:
            self._nested_s += took_s
        if self._every is not None:
            self._writer.wait()  # asked for in so many words: rather wait than leave one out
        if self._is_due(watch, iteration, block, took_s) and not self._writer.is_busy:
            self._take(watch, iteration, block, frame)
            if not watch.is_main:
                self._nested_taken_at = watch.parent_iteration
        elif not self._is_prepared:
            self._is_prepared = True
            self._capture.prepare()
        if self._every is None:
            worth = partial(self._is_worth_it, watch, iteration, block, took_s, is_ahead=True)
            self._moments.look_ahead(watch.block, self.main_iteration + 1, worth)

    def begin_iteration(self, iteration: int) -> None:
        self.main_iteration = iteration
        self._stalled_s, self._was_writing, self._nested_s = 0.0, self._writer.is_busy, 0.0

    def _is_left_to_nested(self, iteration: int, took_s: float) -> bool:
        """Is the end of a nested loop the better place? From there the rest is soon done, and the loop can be skipped.

        If it was too early for a checkpoint there, what is saved now is spent there the next time.
        """
        return self._nested_taken_at == iteration or self._nested_s > _MOST * took_s

    def _observe(self, took_s: float) -> None:
        """What iterations took longer while the writer worked is charged to its checkpoint."""
        self._slow_down.observe(took_s - self._stalled_s, is_writing=self._was_writing)
        if self._charged_s is not None and not self._writer.is_busy:
            self.ledger.charge_more(self._slow_down.settle(self._charged_s, self._wrote_s))
            self._charged_s = None

    def _tell_trouble(self) -> None:
        error = self._writer.trouble()
        if error is not None:
            self.ledger.charge(_now() - self._taken_at)  # at most; else each further attempt would seem to be free
            raise ReliveError(f"a checkpoint could not be written ({error}); free some space") from error

    @property
    def is_regular(self) -> bool:
        """Are checkpoints taken every so many iterations, rather than as often as they are worth it?"""
        return self._every is not None

    def is_of(self, objects: dict[str, Any]) -> bool:
        """Are these the very objects whose state is kept here?"""
        return {id(thing) for thing in objects.values()} == self._named

    def end_block(self, name: str, loop: int, took_s: float, line: int, frame: FrameType) -> None:
        """A stretch of code that is no loop ended."""
        watch = LoopWatch(self, name, loop, is_main=False)
        watch.line = line
        self._begun = min(self._begun, _now() - took_s)  # the first block has earned its own time
        self.main_iteration += 1
        self.consider(watch, 0, took_s, frame)

    def close(self) -> None:
        """Wait for what is being written."""
        if not self._is_forked():
            self._writer.wait()
            self._tell_trouble()

    def _is_forked(self) -> bool:
        """In a forked child checkpoints are the parent's business, and the writer's thread is not here."""
        return os.getpid() != self._process

    def finish(self, watch: LoopWatch, iteration: int, frame: FrameType | None) -> None:
        """The main loop is over: its end is always kept, whatever it costs."""
        if self._is_forked():
            return
        self._writer.wait()
        block = self.ledger.blocks.setdefault(f"{watch.name}: end", Block())
        self._take(watch, iteration, block, frame, is_end=True)
        self._writer.wait()
        self._moments.begin_anew()

    def _is_due(self, watch: LoopWatch, iteration: int, block: Block, took_s: float) -> bool:
        if self._every is not None:
            return (self.main_iteration + 1) % self._every == 0
        worth = partial(self._is_worth_it, watch, iteration, block, took_s)
        return self._moments.is_due(watch.block, self.main_iteration, worth)

    def _is_worth_it(
        self, watch: LoopWatch, iteration: int, block: Block, took_s: float, *, is_ahead: bool = False
    ) -> bool:
        """Is a checkpoint worth it here, or `is_ahead`, when as much time again has passed?"""
        if watch.is_main and self._is_left_to_nested(iteration, took_s) and not self._is_cheap(block):
            return False
        size, elapsed_s, owed_s = self._capture.size_bytes(), _now() - self._begun, 0.0
        if is_ahead:
            if self._writer.is_busy and self._wrote_s > block.mean_s:
                return False  # it would still be at it
            block = Block(block.compute_s + block.mean_s, block.executions + 1, block.checkpoints)
            elapsed_s += block.mean_s
            owed_s = self.ledger.cost_s(size) if self._writer.is_busy else 0.0
        return self.ledger.is_worth_it(block, size_bytes=size, elapsed_s=elapsed_s, owed_s=owed_s)

    def is_awaited(self, watch: LoopWatch) -> bool:
        """Did the ranks agree on a checkpoint in the current iteration?"""
        return self._moments.is_awaited(watch.block, self.main_iteration)

    def _is_cheap(self, block: Block) -> bool:
        cost_s = self.ledger.cost_s(self._capture.size_bytes())
        return cost_s < _CHEAP * self.ledger.overhead * block.mean_s

    # --- taking one ---------------------------------------------------------------------------------------------

    def _take(
        self, watch: LoopWatch, iteration: int, block: Block, frame: FrameType | None, *, is_end: bool = False
    ) -> None:
        begun = self._taken_at = _now()
        user = users_frame(frame)
        moment = self._moment(user, watch, is_end=is_end)
        inner = user if not watch.is_main else None
        around = lost_around(inner, self.main_loop, self._capture.known) if inner and self.main_loop else []
        stall_s = _now() - begun
        self._stalled_s, self._was_writing = self._stalled_s + stall_s, True
        block.checkpoints += 1
        self.left_out.update(moment.left_out)
        self.kept[watch.name] = {name: str(part["kind"]) for name, part in moment.subjects.items()}
        place = "end" if is_end else "iteration" if watch.is_main else "loop"

        def done(written: Written) -> None:
            behind_s = self._behind_s(written)
            self.ledger.charge(stall_s + behind_s)
            self._charged_s, self._wrote_s = behind_s, written.took_s
            self._line(
                "checkpoint", watch.loop, iteration, place=place, name=watch.name, manifest=written.manifest,
                bytes=written.size_bytes, new_bytes=written.new_bytes, stall_s=stall_s, write_s=written.took_s,
                left_out=moment.left_out, exhausted=watch.is_exhausted, plainly=watch.is_plainly_left,
                left_around=around,
            )  # fmt: skip

        self._writer.begin(moment, done)

    def _behind_s(self, written: Written) -> float:
        """What the training lost to the writer's thread, as far as is known when it is done.

        On a machine whose cores are all busy that is what the thread used. If iterations turn out to be slowed down by
        more, that is added; while that can't be known, the worst is.
        """
        if has_spare_core():
            return written.cpu_s * (_BESIDE if self._slow_down.is_known else 1.0)
        return written.cpu_s if self._slow_down.is_known else max(written.cpu_s, written.took_s)

    def _moment(self, user: FrameType | None, watch: LoopWatch, *, is_end: bool) -> CapturedState:
        extra: dict[str, Any] = {RANDOM: global_states()}
        things = dict(self._objects)
        if user is not None:
            outer = self.main_loop if not watch.is_main else None
            found = near(user, watch.line, self._objects, outer, modules=self._modules)
            things |= {f"{NEAR}:{name}": one for name, one in found.things.items()}
            self._capture.replace(NEAR, found.subjects)
            self._capture.known = self._known | {id(one): f"{NEAR}:{name}" for name, one in found.things.items()}
            self._capture.known = self._capture.parts() | self._capture.known
            kept = variables(user, watch.line, self._capture.known)
            extra |= {f"{VARIABLES}:{name}": value for name, value in kept.items()}
            extra[UNKEPT] = unkept(user, watch.line, kept)
            if not watch.is_main:
                for level, values in enumerate(variables_around(user, self.main_loop, self._capture.known)):
                    extra |= {f"{AROUND}:{level}:{name}": value for name, value in values.items()}
        if is_end or gradients_outlive():
            extra[GRADIENTS] = gradients_of(things)
        moment = self._capture.take(extra, is_certain=is_end, has_looked=user is not None)
        if user is not None:
            moment.left_out.extend(lost_variables(user, watch.line, self._capture.known))
        return moment


def has_spare_core() -> bool:
    """Does the training leave a core to others?"""
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return bool(threads < cores)


class LoopWatch:
    """One loop inside a `checkpointing` block, and the time its iterations take."""

    def __init__(self, owner: Checkpointer, name: str, loop: int, *, is_main: bool) -> None:
        self._owner = owner
        self.name = name
        self.loop = loop
        self.is_main = is_main
        self.block = f"{name}: iteration" if is_main else f"{name}: loop"
        self.line = 0
        self.is_exhausted = False  # else it was left by a break, a return or an exception
        self.is_plainly_left = True  # what follows it came next
        self.made_in: CodeType | None = None  # the code that asked for the loop
        self.parent_iteration = owner.main_iteration
        self._iteration_begun = self._begun = self._considered = _now()

    def begin_iteration(self, iteration: int, frame: FrameType | None) -> None:
        self._iteration_begun = _now()
        if self.is_main:
            self._owner.begin_iteration(iteration)
        if not self.line and (user := self._frame(frame)) is not None:
            self.line = user.f_lineno
            if self.is_main:
                self._owner.main_loop = id(user), id(user.f_code), user.f_lineno

    def end_iteration(self, iteration: int, frame: FrameType | None) -> None:
        # Iterations that are over in no time are considered together, or asking would take longer than they do.
        is_brief = _now() - self._considered <= _BRIEF_S
        if self.is_main and (not is_brief or self._owner.is_regular or self._owner.is_awaited(self)):
            self._owner.consider(self, iteration, _now() - self._iteration_begun, self._frame(frame))
            self._considered = _now()

    def end(self, iteration: int, frame: FrameType | None, *, exhausted: bool) -> None:
        """The loop is over, whether it ran out or was left."""
        self.is_exhausted = exhausted
        user = self._frame(frame)
        if not self.line and user is not None:
            self.line = user.f_lineno  # it had no iteration
        self.is_plainly_left = exhausted or (user is not None and falls_through(user, self.line))
        self._owner.leave()
        if self.is_main:
            self._owner.finish(self, iteration, user)
        else:
            self._owner.consider(self, iteration, _now() - self._begun, user)

    def _frame(self, frame: FrameType | None) -> FrameType | None:
        return loops_frame(frame, self.made_in) if self.made_in is not None else users_frame(frame)
