"""The loops of a training that a library runs, as its own code and callbacks tell of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from relive.checkpoint.state import TrainerState
from relive.handsfree.capture import checkpointed_loop, explainer, call_safely, scopes, script_logs, current_driver, wrap_method
from relive.record.process import warn_once

EPOCH, STEP = "epoch", "step"
STATE_NAME = "library"  # what its state is called in checkpoints
GetState = Callable[[], TrainerState | None]  # None: its state can't be kept


class FrameworkLoop:
    """Where a library is in its epochs and steps.

    A library whose loop can be entered in the middle *drives* the course: it asks before each epoch, and gives what is
    to be kept at the end of each. Of any other the loops are known, and no more.
    """

    def __init__(self) -> None:
        self.is_driven = False
        self.is_over = False  # the epochs that are left are not to be run: their end is there already
        self.stopped = False  # what the library's own sign to stop said, while ours stands there
        self.number = 0  # of the epoch it is in; a replay may begin with any
        self._hold: GetState | None = None
        self._epochs: _DrivenIterations | None = None
        self._steps: _DrivenIterations | None = None

    def drive(self, hold: GetState) -> None:
        """A training begins whose loop can be entered in the middle."""
        self.leave()
        self.is_driven, self.is_over, self._hold = True, False, hold

    def begins_epoch(self) -> bool:
        """Is another epoch to be run? Then it has begun."""
        if not self.is_over:
            self.begin_epoch()
        return not self.is_over

    def begin_epoch(self) -> None:
        self.end_steps()
        if self._epochs is None:
            self._epochs = _DrivenIterations(self._entered)
        number = self._epochs.go()
        if number is None:
            self.is_over = self.is_driven
        else:
            self.number = number

    def begin_step(self) -> None:
        if self._steps is None:
            self._steps = _DrivenIterations(lambda items: current_driver().loop(STEP, _WithoutCheckpoints(items)))
        self._steps.go()

    def end_steps(self) -> None:
        if self._steps is not None:
            self._steps.leave()
        self._steps = None

    def end(self) -> None:
        """The library has run all epochs that it meant to."""
        self.end_steps()
        epochs, self._epochs = self._epochs, None
        if epochs is not None:
            epochs.run_out()

    def leave(self) -> None:
        """The training is left, whether it has ended or failed."""
        self.end_steps()
        epochs, self._epochs, self._hold = self._epochs, None, None
        if epochs is not None:
            epochs.leave()

    def log(self, values: Mapping[Any, Any]) -> None:
        """What the library logs by itself, in the loops it is in."""
        script_logs.hear_always(values)

    def _entered(self, items: Iterable[int]) -> Iterable[Any]:
        driver = current_driver()
        held = self._held()
        if held is None or driver.is_checkpointing or not scopes.is_worth_it(EPOCH):
            return driver.loop(EPOCH, _WithoutCheckpoints(items))
        explainer.led(EPOCH, str(held.told["by"]))
        return checkpointed_loop(driver, EPOCH, items, {STATE_NAME: held})

    def _held(self) -> TrainerState | None:
        try:
            return self._hold() if self._hold is not None else None
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            reason = f"{type(error).__name__}: {error}"
            warn_once(
                "checkpoint-lost", f"{reason}; no checkpoint is taken of this training, it is replayed as a whole"
            )
            return None


class _WithoutCheckpoints:
    """The items of a loop of which no checkpoint is taken: nothing but its library could skip it."""

    is_kept = False

    def __init__(self, items: Iterable[int]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)


class _DrivenIterations:
    """The iterations of a loop that others run: 0, 1, 2, … until they say that it has run out."""

    def __init__(self, enter: Callable[[Iterable[int]], Iterable[Any]]) -> None:
        self._is_over = False
        self._next = 0
        self._iterations: Iterator[Any] | None = None
        self._enter = enter

    def go(self) -> int | None:
        if self._iterations is None:
            self._iterations = iter(self._enter(self))
        return next(self._iterations, None)

    def run_out(self) -> None:
        self._is_over = True
        self.go()

    def leave(self) -> None:
        close = getattr(self._iterations, "close", None)
        if close is not None:
            close()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self._is_over:
            raise StopIteration
        self._next += 1
        return self._next - 1


SOURCE = "frameworks"


def insert_callback(kind: Any, callbacks: Callable[[Any], list[Any]], made: type) -> None:
    """Put our callback before all others, so that they are in the loops that it tells of; unless there is one."""

    def init(original: Callable[..., None], self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if SOURCE in script_logs.sources:
            call_safely(kind.__name__, put, self)

    def put(owner: Any) -> None:
        there = callbacks(owner)
        if find_framework_loop(there) is None:
            there.insert(0, made())

    wrap_method(kind, "__init__", init)


def find_framework_loop(callbacks: Iterable[Any]) -> FrameworkLoop | None:
    """The course that one of these callbacks tells of, if one of them is ours."""
    found = (getattr(callback, "relive_course", None) for callback in callbacks)
    return next((course for course in found if isinstance(course, FrameworkLoop)), None)
