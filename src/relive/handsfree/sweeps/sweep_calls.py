"""A call that a pool makes for the script: the first loop or value that it records opens a run of its own."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from relive.checkpoint.state import encoded_random_states
from relive.handsfree.configs import noted_settings, settings_of
from relive.handsfree.sweeps.current_call import call_here
from relive.instrument import HOOK_NAME
from relive.record import explicit_run, next_explicit_number, session
from relive.record.process import detect_launch, warn_once
from relive.record.provenance import RunBeginning

Function = Callable[..., Any]
Settings = list[tuple[str, Any, str]]


_TRAINING_HOOKS = frozenset({"main", "main_iterations"})  # what the code of training loops calls


class CallNumber(NamedTuple):
    """The number of a call among the explicit runs of its script, and in its sweep."""

    nth: int
    trial: int


class SweepFacts(NamedTuple):
    """What the calls of one function share."""

    sweep: str
    settings: Settings  # of the run that makes the calls
    is_packed: bool = False  # number and argument are one pair, for pools that pass one argument


def tags_of_call(sweep_name: str, trial: int) -> dict[str, Any]:
    """Returns the tags of a run in a sweep; a sweep that the environment names keeps its name."""
    return ({} if "RELIVE_SWEEP" in os.environ else {"sweep": sweep_name}) | {"trial": trial}


class OpenCall:
    """A call that is being made; its run is opened when it records something."""

    def __init__(self, call: SweepCall, number: CallNumber, arguments: Callable[[], Settings]) -> None:
        self._call, self._number, self._arguments = call, number, arguments
        self._random_states = encoded_random_states()
        self._is_open = False
        self.runs = contextlib.ExitStack()

    def open_run(self) -> None:
        """Opens the run. The processes of one training, which have ranks, stay in the run of their parent."""
        if self._is_open:
            return
        self._is_open = True
        if detect_launch().world_size > 1:
            return
        beginning = RunBeginning(self._number.nth, self._random_states)
        self.runs.enter_context(explicit_run("", tags_of_call(self._call.sweep, self._number.trial), beginning))
        with _call_goes_on():
            if session.driver is not None:
                noted_settings.note(session.driver, [*self._call.settings, *self._arguments()])


@contextlib.contextmanager
def _call_goes_on() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the user's call must be made, recorded or not
        warn_once("recording-off", f"{type(error).__name__}: {error}; this call is not recorded as a run of its own")


class SweepCall:
    """A function of the project that a pool calls. It takes the number of the call before the arguments."""

    def __init__(self, set_up: WorkerSetUp | None, function: Function, facts: SweepFacts) -> None:
        self._set_up, self._function, self._facts = set_up, function, facts
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        # The set-up comes first: it must be unpickled before the module of the function is imported in the worker.
        return SweepCall, (self._set_up, self._function, self._facts)

    @property
    def sweep(self) -> str:
        return self._facts.sweep

    @property
    def settings(self) -> Settings:
        return self._facts.settings

    def __call__(self, number: Any, *args: Any, **options: Any) -> Any:
        if self._facts.is_packed:
            number, *args = number
        call = None
        with _call_goes_on():
            call = OpenCall(self, number, lambda: call_settings(self._function, args, options))
        if call is None:
            return self._function(*args, **options)
        token = call_here.set(call)
        try:
            with call.runs:
                return self._function(*args, **options)
        finally:
            call_here.reset(token)


def call_settings(function: Function, args: Any, options: dict[str, Any]) -> Settings:
    """Returns the arguments of a call as settings: numbers, texts, and configs with dotted names."""
    try:
        bound = inspect.signature(function).bind(*args, **options)
    except (TypeError, ValueError):  # the call itself will tell that its arguments don't fit
        return []
    bound.apply_defaults()
    origin = getattr(function, "__name__", type(function).__name__)
    return [(name, value, origin) for name, value in settings_of(bound.arguments)]


class WorkerSetUp:
    """Sets up hands-free recording in a worker when it is unpickled there."""

    def __init__(self, function: Callable[..., None], facts: tuple[Any, ...]) -> None:
        self._function, self._facts = function, facts

    def __reduce__(self) -> tuple[Any, ...]:
        return _set_up_worker, (self._function, self._facts)


def _set_up_worker(function: Callable[..., None], facts: tuple[Any, ...]) -> WorkerSetUp:
    try:
        function(*facts)
    except Exception as error:  # noqa: BLE001 - the user's call must be made, recorded or not
        warn_once("recording-off", f"{type(error).__name__}: {error}; the calls of this worker are not recorded")
    return WorkerSetUp(function, facts)


class Sweep:
    """The calls that this process has given to pools."""

    def __init__(self) -> None:
        self.set_up: WorkerSetUp | None = None  # None until a script runs hands-free
        self.trainers: frozenset[str] = frozenset()  # functions that train, as the survey of the project has them
        self._trials = 0

    def is_recorded(self, function: Any) -> bool:
        """Whether calls of a function are recorded as runs: it belongs to the project, and trains."""
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if self.set_up is None or code is None or not noted_settings.is_project_file(code.co_filename):
            return False
        kind = "m" if inspect.ismethod(function) else "f"
        has_training_loop = HOOK_NAME in code.co_names and not _TRAINING_HOOKS.isdisjoint(code.co_names)
        return has_training_loop or f"{kind}:{code.co_name}" in self.trainers

    def wrap(self, function: Function, *, is_packed: bool = False) -> SweepCall:
        return SweepCall(self.set_up, function, SweepFacts(self._name(), noted_settings.settings(), is_packed))

    def number_next(self, function: Function, args: Any, options: dict[str, Any]) -> CallNumber:
        """Returns the number of the next call; in a replay of this call, makes it here, and ends the process."""
        self._trials += 1
        if session.open_replayed_run is None:
            return CallNumber(next_explicit_number(), self._trials - 1)
        replayed = session.open_replayed_run()
        if replayed is not None:
            _replay(replayed, function, args, options)
        return CallNumber(0, self._trials - 1)

    def tags(self, trial: int) -> dict[str, Any]:
        return tags_of_call(self._name(), trial)

    def _name(self) -> str:
        """The script, and the run that makes the calls: the same script makes another sweep the next time."""
        main = getattr(sys.modules.get("__main__"), "__file__", None) or "sweep"
        run = session.first.run if session.first is not None else ""
        return f"{Path(main).stem}-{run[:8]}"


def _replay(replayed: Any, function: Function, args: Any, options: dict[str, Any]) -> None:
    session.open_replayed_run = lambda: replayed
    with explicit_run("", {}):
        function(*args, **options)


sweep = Sweep()
