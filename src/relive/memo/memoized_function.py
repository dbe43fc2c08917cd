"""A memoized function: each call is looked up, and on a miss computed once, stored, and then returned."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relive.errors import Damaged, ReliveError, Unstable
from relive.memo.call_key import Call, Keys
from relive.memo.computation import Computation
from relive.memo.home_stores import HOMES
from relive.memo.inputs import ObservedInput, adopt_inputs, inputs_hash, is_recording
from relive.memo.memoizer import Computed, Entry, InputIndex, Memoizer
from relive.memo.result_codec import Unstorable
from relive.memo.sqlite_memoizer import Sqlite
from relive.record import current_home, current_run, record_line
from relive.record.process import raised_by_signal_handler, warn_once
from relive.store.journal import line_schema

ATTRIBUTE = "__relive_memo__"


@dataclass(frozen=True, slots=True)
class MemoOptions:
    """The options of `@relive.memo`."""

    ignore: Sequence[str] = ()
    store: Callable[[Call, Any], Any] | None = None
    reuse: Callable[[Call, Entry], Any] | None = None
    exceptions: tuple[type[BaseException], ...] = ()
    version: object = None
    depends: Sequence[object] = ()
    memoizer: Memoizer | None = None


@dataclass(slots=True)
class Attempt:
    """A call in progress: its memoizer, what the lookup found, and what the computation read."""

    call: Call
    memoizer: Memoizer
    found: str = "absent"
    computation: Computation | None = None


class MemoizedFunction:
    """A function whose results are memoized."""

    def __init__(self, function: Callable[..., Any], options: MemoOptions) -> None:
        _check_decorable(function)
        self.function = function
        self.options = options
        self.keys = Keys(
            function, ignore=options.ignore, version=options.version, depends=options.depends,
            fingerprints=HOMES.fingerprints,
        )  # fmt: skip
        self._carried: dict[tuple[str, str], ObservedInput] = {}
        self._own_index = InputIndex()  # for memoizers that keep no inputs

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoizedFunction, (self.function, self.options)

    def wrap(self) -> Callable[..., Any]:
        """Returns the wrapper that replaces the user's function."""
        call, call_async = self.call, self.call_async
        if inspect.iscoroutinefunction(self.function):

            @functools.wraps(self.function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                return await call_async(args, kwargs)
        else:

            @functools.wraps(self.function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return call(args, kwargs)

        setattr(wrapper, ATTRIBUTE, self)
        return wrapper

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        attempt = self._start_attempt(args, kwargs)
        if attempt is None:
            return self.function(*args, **kwargs)
        hit = self._look_up(attempt)
        if hit is not None:
            return hit.unwrap()
        key, flights = attempt.call.key, attempt.memoizer.flights
        if flights.is_held_by_caller(key):
            return self.function(*args, **kwargs)
        with self._holding_key(attempt, lambda: flights.acquire(key)):
            hit = self._look_up(attempt)
            if hit is not None:
                return hit.unwrap()
            with self._computing(attempt) as computation:
                try:
                    result = self.function(*args, **kwargs)
                except BaseException as error:
                    computation.stop()
                    self._store_exception(attempt, error, computation.took_s)
                    raise
            self._store_result(attempt, result, computation.took_s)
            return result

    async def call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        attempt = self._start_attempt(args, kwargs)
        if attempt is None:
            return await self.function(*args, **kwargs)
        hit = self._look_up(attempt)
        if hit is not None:
            return hit.unwrap()
        key, flights = attempt.call.key, attempt.memoizer.flights
        if flights.is_held_by_caller(key):
            return await self.function(*args, **kwargs)
        await flights.acquire_async(key)
        try:
            hit = self._look_up(attempt)
            return hit.unwrap() if hit is not None else await self._compute(attempt, self.function(*args, **kwargs))
        finally:
            flights.release(key)

    async def _compute(self, attempt: Attempt, coroutine: Awaitable[Any]) -> Any:
        with self._computing(attempt) as computation:
            try:
                result = await coroutine
            except BaseException as error:
                computation.stop()
                self._store_exception(attempt, error, computation.took_s)
                raise
        self._store_result(attempt, result, computation.took_s)
        return result

    def _computing(self, attempt: Attempt) -> Computation:
        home = attempt.memoizer.home if isinstance(attempt.memoizer, Sqlite) else current_home()[0]
        attempt.computation = Computation(self.keys, str(home.path))
        return attempt.computation

    # --- lookup -------------------------------------------------------------------------------------------------

    def _start_attempt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Attempt | None:
        """Binds the arguments and computes the key; returns None if the call can't be memoized."""
        keys = self.keys
        try:
            arguments = keys.bind(args, kwargs)
        except TypeError:  # wrong arguments: calling the function raises the right error
            return None
        try:
            memoizer = self.options.memoizer or HOMES.store()
            return Attempt(keys.make(arguments), memoizer) if memoizer is not None else None
        except Unstable as error:
            warn_once("memo-unhashable", f"calls of {keys.name} are not remembered: {error}", about=keys.name)
        except Exception as error:  # noqa: BLE001 - the user's call must go on
            self._warn_of_failure(error)
        return None

    def _look_up(self, attempt: Attempt) -> Hit | None:
        call = attempt.call
        try:
            entry = self.find_entry(call, attempt.memoizer)
            if entry is None:
                return None
            if not self.may_reuse(call, entry):
                attempt.found = "expired"
                return None
            hit = Hit(entry, entry.value)
        except Exception as error:  # an unreadable entry counts as absent: the call is computed again
            if raised_by_signal_handler(error):
                raise
            attempt.found = "unreadable"
            reason = str(error) if isinstance(error, ReliveError) else f"{type(error).__name__}: {error}"
            warn_once("memo-unreadable", f"{reason} (a call of {call.function})", about=call.function)
            return None
        self._write_line(attempt, "hit", entry)
        return hit

    def find_entry(self, call: Call, memoizer: Memoizer) -> Entry | None:
        """Returns the entry of a call: under its key, or, if it read files, the one whose inputs are what they were."""
        entry = memoizer.look_up(call.key)
        if entry is not None:
            return entry
        for key, inputs in self._index(memoizer).inputs_of(call.key):
            if all(one.still_holds() for one in inputs):
                entry = memoizer.look_up(key)
                if entry is not None:
                    if is_recording():
                        adopt_inputs(inputs)
                    return entry
        return None

    def _index(self, memoizer: Memoizer) -> InputIndex:
        return getattr(memoizer, "index", None) or self._own_index

    def changed_inputs(self, call: Call, memoizer: Memoizer) -> list[str]:
        """Returns the inputs of stored entries of a call that are no longer what they were."""
        listed = self._index(memoizer).inputs_of(call.key)
        return [one.describe() for _, inputs in listed[:1] for one in inputs if not one.still_holds()]

    def may_reuse(self, call: Call, entry: Entry) -> bool:
        if entry.is_exception and not self.options.exceptions:
            return False
        return self.options.reuse is None or self._run_hook(self.options.reuse, call, entry)

    # --- storage --------------------------------------------------------------------------------------------------

    def _store_result(self, attempt: Attempt, result: Any, took_s: float) -> None:
        with self._failures_as_warnings():
            computed = Computed(took_s, current_run(), attempt.found)
            kept = self._settle_inputs(attempt) or "filtered"
            if kept == "filtered" and self._run_hook(self.options.store, attempt.call, result):
                kept = self._try_store(attempt, attempt.memoizer.store_result, result, computed)
            self._record_miss(attempt, computed, kept)

    def _store_exception(self, attempt: Attempt, error: BaseException, took_s: float) -> None:
        with self._failures_as_warnings():
            computed = Computed(took_s, current_run(), attempt.found)
            kept = "raised"
            is_wanted = isinstance(error, self.options.exceptions) and not self._settle_inputs(attempt)
            if is_wanted and self._run_hook(self.options.store, attempt.call, error):
                kept = self._try_store(attempt, attempt.memoizer.store_exception, error, computed)
            self._record_miss(attempt, computed, kept)

    def _settle_inputs(self, attempt: Attempt) -> str:
        """Gives the call the key that includes what it has read; returns why its result can't be kept, or ""."""
        computation, call = attempt.computation, attempt.call
        if computation is None or computation.unsettled():
            return "unsettled"
        found = {(one.kind, one.name): one for one in computation.inputs()}
        if self.keys.has_cache:  # what an earlier call has read may be in use now, without being read again
            self._carried |= found
            found = dict(self._carried)
        if found:
            inputs = list(found.values())
            attempt.call = replace(call, key=inputs_hash(call.key, inputs))
            self._index(attempt.memoizer).add_inputs(call.key, attempt.call.key, inputs)
        return ""

    def _try_store(self, attempt: Attempt, store: Callable[..., None], value: Any, computed: Computed) -> str:
        try:
            store(attempt.call, value, computed)
        except Unstorable as error:
            message = f"the result of {self.keys.name} ({type(value).__name__}) can't be stored: {error}"
            warn_once("memo-unstorable", f"{message}; return something that can be pickled", about=self.keys.name)
            return "unstorable"
        return "stored"

    def _record_miss(self, attempt: Attempt, computed: Computed, kept: str) -> None:
        if kept != "stored" and isinstance(attempt.memoizer, Sqlite):
            attempt.memoizer.record_miss(attempt.call, computed, kept)
        self._write_line(attempt, "miss", None, kept=kept, took_s=computed.took_s)

    def _write_line(self, attempt: Attempt, outcome: str, entry: Entry | None, **more: Any) -> None:
        """Writes a hit or miss as a line to the journal of the current run."""
        call, memoizer = attempt.call, attempt.memoizer
        line = {"function": call.function, "key": call.key[:32], "outcome": outcome, **more}
        if entry is not None:
            line |= {"from_": entry.run, "saved_s": entry.took_s, "kind": entry.kind}
        elif attempt.found != "absent":
            line["found"] = attempt.found
        adopt = memoizer.adopt if outcome == "miss" and isinstance(memoizer, Sqlite) else None
        record_line(line_schema.CallRemembered, line, (lambda run: adopt(call.key, run)) if adopt is not None else None)

    def _run_hook(self, hook: Callable[..., Any] | None, call: Call, about: Any) -> bool:
        """Calls a user's hook; if it fails, the result is neither stored nor reused."""
        if hook is None:
            return True
        try:
            return bool(hook(call, about))
        except Exception as error:  # a bug in a hook must not lose the computed result
            if raised_by_signal_handler(error):
                raise
            message = (
                f"a hook of {self.keys.name} failed ({type(error).__name__}: {error}); nothing was stored or reused"
            )
            warn_once("memo-hook", f"{message}; fix it", about=self.keys.name)
            return False

    @contextlib.contextmanager
    def _holding_key(self, attempt: Attempt, take: Callable[[], None]) -> Iterator[None]:
        key = attempt.call.key  # storing may give the call another one
        take()
        try:
            yield
        finally:
            attempt.memoizer.flights.release(key)

    @contextlib.contextmanager
    def _failures_as_warnings(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the user's call must go on
            self._warn_of_failure(error)

    def _warn_of_failure(self, error: Exception) -> None:
        """Warns about a failure of the store, which may cost a computation but never a result."""
        if raised_by_signal_handler(error):
            raise error
        if isinstance(error, Damaged) and isinstance(memoizer := self.options.memoizer or HOMES.store(), Sqlite):
            memoizer.memos.set_aside()
        reason = str(error) if isinstance(error, ReliveError | OSError | sqlite3.Error) else repr(error)
        warn_once("memo-off", f"a call of {self.keys.name} was not remembered: {reason}", about=self.keys.name)


@dataclass(slots=True)  # not frozen, for the same reason as `Call`
class Hit:
    """The stored outcome of a call."""

    entry: Entry
    value: Any

    def unwrap(self) -> Any:
        if not self.entry.is_exception:
            return self.value
        where = f" in run {self.entry.run}" if self.entry.run else ""
        self.value.add_note(f"remembered by relive.memo from a call{where}, {self.entry.age_days:.1f} days ago")
        raise self.value


def _check_decorable(function: Any) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(function, staticmethod | classmethod | property):
        raise ReliveError(f"@relive.memo is above @{type(function).__name__}; put it below, next to the function")
    if isinstance(function, type) or not callable(function):
        raise ReliveError(f"{name} is not a function; apply relive.memo to a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ReliveError(f"{name} is a generator, so it has no result to store; return a list instead")
