"""What a call of a remembered function does: look up, else compute once, store, and only then return."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relive.errors import Damaged, ReliveError, Unstable
from relive.memo.call_key import Call, Keys
from relive.memo.home_stores import HOMES
from relive.memo.memoizer import Computed, Entry, Memoizer
from relive.memo.result_codec import Unstorable
from relive.memo.sqlite_memoizer import Sqlite
from relive.record import note, run_here
from relive.record.process import is_users, warn_once

ATTRIBUTE = "__relive_memo__"


@dataclass(frozen=True, slots=True)
class MemoOptions:
    """How a function is remembered."""

    ignore: Sequence[str] = ()
    store: Callable[[Call, Any], Any] | None = None
    reuse: Callable[[Call, Entry], Any] | None = None
    exceptions: tuple[type[BaseException], ...] = ()
    version: object = None
    depends: Sequence[object] = ()
    memoizer: Memoizer | None = None


@dataclass(slots=True)
class Attempt:
    """One call on its way: where it looks, and what it found so far."""

    call: Call
    memoizer: Memoizer
    found: str = "absent"


class Memoised:
    """A function with its memory."""

    def __init__(self, function: Callable[..., Any], options: MemoOptions) -> None:
        _check(function)
        self.function = function
        self.options = options
        self.keys = Keys(
            function, ignore=options.ignore, version=options.version, depends=options.depends,
            fingerprints=HOMES.fingerprints,
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        return Memoised, (self.function, self.options)

    def wrap(self) -> Callable[..., Any]:
        """The function that users call in place of theirs."""
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
        attempt = self._begin(args, kwargs)
        if attempt is None:
            return self.function(*args, **kwargs)
        hit = self._look_up(attempt)
        if hit is not None:
            return hit.give()
        key, flights = attempt.call.key, attempt.memoizer.flights
        if flights.is_held_here(key):
            return self.function(*args, **kwargs)
        with self._flying(attempt, lambda: flights.take(key)):
            hit = self._look_up(attempt)
            if hit is not None:
                return hit.give()
            begun = time.perf_counter()
            try:
                result = self.function(*args, **kwargs)
            except BaseException as error:
                self._keep_exception(attempt, error, time.perf_counter() - begun)
                raise
            self._keep_result(attempt, result, time.perf_counter() - begun)
            return result

    async def call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        attempt = self._begin(args, kwargs)
        if attempt is None:
            return await self.function(*args, **kwargs)
        hit = self._look_up(attempt)
        if hit is not None:
            return hit.give()
        key, flights = attempt.call.key, attempt.memoizer.flights
        if flights.is_held_here(key):
            return await self.function(*args, **kwargs)
        await flights.take_soon(key)
        try:
            hit = self._look_up(attempt)
            return hit.give() if hit is not None else await self._compute(attempt, self.function(*args, **kwargs))
        finally:
            flights.give_back(key)

    async def _compute(self, attempt: Attempt, coroutine: Awaitable[Any]) -> Any:
        begun = time.perf_counter()
        try:
            result = await coroutine
        except BaseException as error:
            self._keep_exception(attempt, error, time.perf_counter() - begun)
            raise
        self._keep_result(attempt, result, time.perf_counter() - begun)
        return result

    # --- before -------------------------------------------------------------------------------------------------

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Attempt | None:
        """None when the call can't be remembered: then it is simply made."""
        keys = self.keys
        try:
            arguments = keys.bind(args, kwargs)
        except TypeError:  # they don't fit: the call itself says so best
            return None
        try:
            memoizer = self.options.memoizer or HOMES.store()
            return Attempt(keys.make(arguments), memoizer) if memoizer is not None else None
        except Unstable as error:
            warn_once("memo-unhashable", f"calls of {keys.name} are not remembered: {error}", about=keys.name)
        except Exception as error:  # noqa: BLE001 - the user's call must go on
            self._failed(error)
        return None

    def _look_up(self, attempt: Attempt) -> Hit | None:
        call = attempt.call
        try:
            entry = attempt.memoizer.look_up(call.key)
            if entry is None:
                return None
            if not self.may_reuse(call, entry):
                attempt.found = "expired"
                return None
            hit = Hit(entry, entry.value)
        except Exception as error:  # an entry that can't be read is as good as none: the call is made again
            if is_users(error):
                raise
            attempt.found = "unreadable"
            reason = str(error) if isinstance(error, ReliveError) else f"{type(error).__name__}: {error}"
            warn_once("memo-unreadable", f"{reason} (a call of {call.function})", about=call.function)
            return None
        self._note(attempt, "hit", entry)
        return hit

    def may_reuse(self, call: Call, entry: Entry) -> bool:
        if entry.is_exception and not self.options.exceptions:
            return False
        return self.options.reuse is None or self._ask(self.options.reuse, call, entry)

    # --- after --------------------------------------------------------------------------------------------------

    def _keep_result(self, attempt: Attempt, result: Any, took_s: float) -> None:
        with self._guarded():
            computed = Computed(took_s, run_here(), attempt.found)
            kept = "filtered"
            if self._ask(self.options.store, attempt.call, result):
                kept = self._try_store(attempt, attempt.memoizer.store_result, result, computed)
            self._tell(attempt, computed, kept)

    def _keep_exception(self, attempt: Attempt, error: BaseException, took_s: float) -> None:
        with self._guarded():
            computed = Computed(took_s, run_here(), attempt.found)
            kept = "raised"
            if isinstance(error, self.options.exceptions) and self._ask(self.options.store, attempt.call, error):
                kept = self._try_store(attempt, attempt.memoizer.store_exception, error, computed)
            self._tell(attempt, computed, kept)

    def _try_store(self, attempt: Attempt, store: Callable[..., None], value: Any, computed: Computed) -> str:
        try:
            store(attempt.call, value, computed)
        except Unstorable as error:
            message = f"what {self.keys.name} gave ({type(value).__name__}) can't be remembered: {error}"
            warn_once("memo-unstorable", f"{message}; return something that can be pickled", about=self.keys.name)
            return "unstorable"
        return "stored"

    def _tell(self, attempt: Attempt, computed: Computed, kept: str) -> None:
        if kept != "stored" and isinstance(attempt.memoizer, Sqlite):
            attempt.memoizer.note_miss(attempt.call, computed, kept)
        self._note(attempt, "miss", None, kept=kept, took_s=computed.took_s)

    def _note(self, attempt: Attempt, outcome: str, entry: Entry | None, **more: Any) -> None:
        """Every hit and miss is a line in the run around the call."""
        call, memoizer = attempt.call, attempt.memoizer
        told = {"function": call.function, "key": call.key[:32], "outcome": outcome, **more}
        if entry is not None:
            told |= {"from": entry.run, "saved_s": entry.took_s, "kind": entry.kind}
        elif attempt.found != "absent":
            told["found"] = attempt.found
        adopt = memoizer.adopt if outcome == "miss" and isinstance(memoizer, Sqlite) else None
        note("memo", told, (lambda run: adopt(call.key, run)) if adopt is not None else None)

    def _ask(self, hook: Callable[..., Any] | None, call: Call, about: Any) -> bool:
        """A hook that fails decides nothing: in doubt a result is neither stored nor reused."""
        if hook is None:
            return True
        try:
            return bool(hook(call, about))
        except Exception as error:  # what was computed must not be lost to a mistake in a hook
            if is_users(error):
                raise
            message = (
                f"a hook of {self.keys.name} failed ({type(error).__name__}: {error}); nothing was stored or reused"
            )
            warn_once("memo-hook", f"{message}; mend it", about=self.keys.name)
            return False

    @contextlib.contextmanager
    def _flying(self, attempt: Attempt, take: Callable[[], None]) -> Iterator[None]:
        take()
        try:
            yield
        finally:
            attempt.memoizer.flights.give_back(attempt.call.key)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the user's call must go on
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Trouble with the memory costs a computation, never a result."""
        if is_users(error):
            raise error
        if isinstance(error, Damaged) and isinstance(memoizer := self.options.memoizer or HOMES.store(), Sqlite):
            memoizer.memos.set_aside()
        reason = str(error) if isinstance(error, ReliveError | OSError | sqlite3.Error) else repr(error)
        warn_once("memo-off", f"a call of {self.keys.name} was not remembered: {reason}", about=self.keys.name)


@dataclass(slots=True)  # not frozen, for the same reason as `Call`
class Hit:
    """What a call gives without being made."""

    entry: Entry
    value: Any

    def give(self) -> Any:
        if not self.entry.is_exception:
            return self.value
        where = f" in run {self.entry.run}" if self.entry.run else ""
        self.value.add_note(f"remembered by relive.memo from a call{where}, {self.entry.age_days:.1f} days ago")
        raise self.value


def _check(function: Any) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(function, staticmethod | classmethod | property):
        raise ReliveError(f"@relive.memo is above @{type(function).__name__}; write it below, next to the function")
    if isinstance(function, type) or not callable(function):
        raise ReliveError(f"{name} is no function; relive.memo remembers calls of functions")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ReliveError(f"{name} yields, so it has no result to remember; return a list instead")
