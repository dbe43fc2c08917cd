"""Records the epochs and steps of a training that a framework runs, driven by its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from relive.checkpoint.io import TrainerState
from relive.handsfree.capture import (
    call_safely,
    checkpointed_loop,
    current_driver,
    explainer,
    scopes,
    script_logs,
    wrap_method,
)
from relive.record.process import warn_once

EPOCH, STEP = "epoch", "step"
STATE_NAME = "library"  # the name of the framework's state in checkpoints
GetState = Callable[[], TrainerState | None]  # returns None if the state can't be checkpointed


class FrameworkLoop:
    """The position of a framework in its epochs and steps.

    A framework is *resumable* if a replay can enter its training at any epoch: it asks before each epoch whether to run
    it, and provides its state for checkpoints. Of all other frameworks only the loops are recorded.
    """

    def __init__(self) -> None:
        self.is_resumable = False
        self.is_over = False  # no further epoch is to be run: the state after the last one is restored already
        self.saved_stop_flag = False  # the framework's own stop flag, while it is overwritten
        self.number = 0  # of the current epoch; a replay may begin with any
        self._get_state: GetState | None = None
        self._epochs: _DrivenIterations | None = None
        self._steps: _DrivenIterations | None = None

    def begin_resumable(self, get_state: GetState) -> None:
        """Begins a training that a replay can enter at any epoch."""
        self.leave()
        self.is_resumable, self.is_over, self._get_state = True, False, get_state

    def try_begin_epoch(self) -> bool:
        """Begins the next epoch, if another one is to be run; returns whether it is."""
        if not self.is_over:
            self.begin_epoch()
        return not self.is_over

    def begin_epoch(self) -> None:
        self.end_steps()
        if self._epochs is None:
            self._epochs = _DrivenIterations(self._open_epochs)
        number = self._epochs.advance()
        if number is None:
            self.is_over = self.is_resumable
        else:
            self.number = number

    def begin_step(self) -> None:
        if self._steps is None:
            self._steps = _DrivenIterations(lambda items: current_driver().loop(STEP, _WithoutCheckpoints(items)))
        self._steps.advance()

    def end_steps(self) -> None:
        if self._steps is not None:
            self._steps.leave()
        self._steps = None

    def end(self) -> None:
        """Ends the epochs after the framework has run all of them."""
        self.end_steps()
        epochs, self._epochs = self._epochs, None
        if epochs is not None:
            epochs.exhaust()

    def leave(self) -> None:
        """Leaves the loops when the training is left, whether it has ended or failed."""
        self.end_steps()
        epochs, self._epochs, self._get_state = self._epochs, None, None
        if epochs is not None:
            epochs.leave()

    def log(self, values: Mapping[Any, Any]) -> None:
        """Logs values of the framework's own logger at the current place."""
        script_logs.capture_always(values)

    def _open_epochs(self, items: Iterable[int]) -> Iterable[Any]:
        driver = current_driver()
        state = self._find_state()
        if state is None or driver.is_checkpointing or not scopes.is_worth_it(EPOCH):
            return driver.loop(EPOCH, _WithoutCheckpoints(items))
        explainer.add_framework_loop(EPOCH, str(state.journal_fields["by"]))
        return checkpointed_loop(driver, EPOCH, items, {STATE_NAME: state})

    def _find_state(self) -> TrainerState | None:
        try:
            return self._get_state() if self._get_state is not None else None
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            reason = f"{type(error).__name__}: {error}"
            warn_once(
                "checkpoint-lost", f"{reason}; no checkpoint is taken of this training; replays run it from its start"
            )
            return None


class _WithoutCheckpoints:
    """The items of a loop without checkpoints: only the framework itself could skip its iterations."""

    has_checkpoints = False

    def __init__(self, items: Iterable[int]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)


class _DrivenIterations:
    """The iterations 0, 1, 2, … of a loop that the framework advances, until it is exhausted."""

    def __init__(self, enter: Callable[[Iterable[int]], Iterable[Any]]) -> None:
        self._is_over = False
        self._next = 0
        self._iterations: Iterator[Any] | None = None
        self._enter = enter

    def advance(self) -> int | None:
        if self._iterations is None:
            self._iterations = iter(self._enter(self))
        return next(self._iterations, None)

    def exhaust(self) -> None:
        self._is_over = True
        self.advance()

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


def insert_callback(kind: Any, callbacks: Callable[[Any], list[Any]], callback: type) -> None:
    """Inserts our callback in each new instance of `kind`, unless it has one.

    It comes before all others, so that what they log is in the loops that it records.
    """

    def init(original: Callable[..., None], self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if SOURCE in script_logs.sources:
            call_safely(kind.__name__, insert, self)

    def insert(owner: Any) -> None:
        existing = callbacks(owner)
        if find_framework_loop(existing) is None:
            existing.insert(0, callback())

    wrap_method(kind, "__init__", init)


def find_framework_loop(callbacks: Iterable[Any]) -> FrameworkLoop | None:
    """Returns the framework loop of our callback among these, if there is one."""
    found = (getattr(callback, "relive_loop", None) for callback in callbacks)
    return next((loop for loop in found if isinstance(loop, FrameworkLoop)), None)
