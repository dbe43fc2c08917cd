"""Parsl: a memoizer for `parsl.Config(memoizer=...)` that stores the results of apps in the home."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import parsl.dataflow.memoization as parsl_memo
from parsl.data_provider.files import File

from relive.errors import Damaged, ReliveError, Unstable
from relive.memo import Call, Computed, Keys, Sqlite, Unstorable, content_of
from relive.record import current_home, current_run, record_line
from relive.record.process import warn_once
from relive.store import Home
from relive.store.journal import line_schema

_OUTPUTS = frozenset({"outputs", "stdout", "stderr"})  # paths that an app writes to; their content is not an input


@dataclass(slots=True)
class _Flight:
    """A task that computes a key, and the tasks that wait for its result."""

    task: int
    call: Call
    begun_s: float
    waiting: list[Future[Any]] = field(default_factory=list)


class Memoizer(parsl_memo.Memoizer):  # type: ignore[misc]
    """Stores the results of apps with `cache=True` in the home, together with those of `relive.memo`.

    The key contains the code of the app, as for `relive.memo`. Identical concurrent tasks are computed once.
    Failures are kept until the DataFlowKernel is closed, as by Parsl's own memoizer.

    >>> parsl.load(parsl.Config(memoizer=relive.integrations.parsl.Memoizer()))
    """

    def __init__(self, *, home: str | os.PathLike[str] | None = None, memoize: bool = True) -> None:
        self.home = home
        self.memoize = memoize
        self._store: Sqlite | None = None
        self._keys: dict[tuple[Any, tuple[str, ...]], Keys] = {}
        self._flights: dict[str, _Flight] = {}
        self._failed: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()

    def start(self, *, run_dir: str, config_run_dir: str) -> None:
        home = Home(Path(self.home).expanduser().absolute()) if self.home is not None else current_home()[0]
        home.create()
        self._store = Sqlite(home)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._keys.clear()
        self._failed.clear()

    def check_memo(self, task: Any) -> Future[Any] | None:
        """Returns a future of the result of a stored or running identical task, or None if the task has to run."""
        task["hashsum"] = None
        if not self.memoize or not task["memoize"] or self._store is None:
            return None
        call = self._call(task)
        task["hashsum"] = call.key
        found = self._look_up(call)
        if found is not None:
            return found
        with self._lock:
            if call.key in self._failed:
                return self._failed[call.key]
            flight = self._flights.setdefault(call.key, _Flight(task["id"], call, time.perf_counter()))
            if flight.task == task["id"]:  # the first, or its retry
                return None
            future: Future[Any] = Future()
            flight.waiting.append(future)
            return future

    def update_memo_result(self, task: Any, r: Any) -> None:
        flight = self._end_flight(task)
        if flight is None or self._store is None:
            return
        computed = Computed(time.perf_counter() - flight.begun_s, current_run())
        kept = "stored"
        try:
            self._store.store_result(flight.call, r, computed)
        except Unstorable as error:
            kept = "unstorable"
            message = f"the result of {flight.call.function} ({type(r).__name__}) can't be stored: {error}"
            warn_once("memo-unstorable", f"{message}; return something that can be pickled", about=flight.call.function)
        except Exception as error:  # noqa: BLE001 - the workflow must go on without the store
            kept = "failed"
            warn_once("memo-off", f"{flight.call.function} was not remembered: {error}", about=flight.call.function)
        _write_memo_line(flight.call, outcome="miss", kept=kept, took_s=computed.took_s)
        for future in flight.waiting:
            future.set_result(r)

    def update_memo_exception(self, task: Any, e: BaseException) -> None:
        flight = self._end_flight(task)
        if flight is None:
            return
        with self._lock:
            self._failed[flight.call.key] = task["app_fu"]
        _write_memo_line(flight.call, outcome="miss", kept="raised", took_s=time.perf_counter() - flight.begun_s)
        for future in flight.waiting:
            future.set_exception(e)

    def _end_flight(self, task: Any) -> _Flight | None:
        with self._lock:
            flight = self._flights.get(task.get("hashsum") or "")
            return self._flights.pop(flight.call.key) if flight is not None and flight.task == task["id"] else None

    def _look_up(self, call: Call) -> Future[Any] | None:
        assert self._store is not None
        try:
            entry = self._store.look_up(call.key)
            value = entry.value if entry is not None else None
        except (ReliveError, Damaged, OSError) as error:
            warn_once("memo-unreadable", f"{error} (a call of {call.function})", about=call.function)
            return None
        if entry is None:
            return None
        _write_memo_line(call, outcome="hit", kind=entry.kind, saved_s=entry.took_s, from_=entry.run)
        future: Future[Any] = Future()
        future.set_result(value)
        return future

    def _call(self, task: Any) -> Call:
        """Returns the call of a task, with its key; raises the `ValueError` that Parsl expects if hashing fails."""
        function = _users_function(task["func"])
        ignored = tuple(task["ignore_for_cache"] or ())
        keys = self._keys.get((function, ignored))
        if keys is None:
            keys = self._keys[function, ignored] = Keys(function, substitute=_substitute)
        try:
            return keys.make(_arguments(keys, ignored, task["args"], task["kwargs"]))
        except Unstable as error:
            cause = error.__cause__
            if cause is not None and not isinstance(cause, Unstable):
                raise cause from error  # raised by the user's own id_for_memo
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Output:
    """A path that the task writes to. Its qualified name is part of stored keys."""

    place: str


def _write_memo_line(call: Call, **fields: Any) -> None:
    record_line(line_schema.CallRemembered, {"function": call.function, "key": call.key[:32], **fields})


def _users_function(function: Any) -> Any:
    """Returns the user's function inside Parsl's wrappers."""
    while True:
        if isinstance(function, functools.partial):
            function = function.args[0] if function.args and callable(function.args[0]) else function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function


def _arguments(keys: Keys, ignored: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = dict(keys.bind(tuple(args), dict(kwargs)))
    except TypeError:  # Parsl adds parameters that the function may not have
        bound = {"args": tuple(args), **kwargs}
    counted = {name: value for name, value in bound.items() if name not in ignored}
    return {name: _as_output(value) if name in _OUTPUTS else value for name, value in counted.items()}


def _as_output(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_output(item) for item in value]
    return _Output(str(value)) if isinstance(value, PurePath | File) else value


def _substitute(value: Any) -> object:
    """Replaces files by their content, and types registered with Parsl's `id_for_memo` by its result."""
    if isinstance(value, File):
        return [value.url, content_of(Path(value.filepath), None) if value.scheme == "file" else None]
    registered = parsl_memo.id_for_memo.dispatch(type(value))
    is_own = registered is not parsl_memo.id_for_memo.dispatch(object) and registered.__module__ != parsl_memo.__name__
    return registered(value, output_ref=False) if is_own else NotImplemented
