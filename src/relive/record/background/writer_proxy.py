"""What stands in for a writer in the user's hands: until it is closed, in a forked child, and when Python ends."""

from __future__ import annotations

import atexit
import functools
import os
import warnings
import weakref
from typing import Any, Protocol

from relive.errors import ReliveError
from relive.record.background.deferred_calls import METHOD
from relive.record.process import say


class Worker(Protocol):
    """Who makes the calls. What failed comes out of `flush` and `close` only."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def attribute(self, name: str) -> Any: ...  # METHOD for what can be called
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...  # in a forked child: let go of what is the parent's, and never wait


class Background:
    """Stands in for a writer: its methods return at once, its other attributes are passed through."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._is_open = True
        # Exit has its own reference to the worker: what is dropped open is written all the same.
        self._at_exit = functools.partial(_close_at_exit, worker, os.getpid())
        atexit.register(self._at_exit)
        _open.add(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what `copy`, `pickle` and notebooks look for is not the writer's to answer
            raise AttributeError(f"a background writer has no {name}")
        value = self._worker.attribute(name)
        return functools.partial(self._call, name) if value is METHOD else value

    def _call(self, name: str, *args: Any, **kwargs: Any) -> None:
        self._worker.call(name, args, kwargs)

    def flush(self) -> None:
        """Wait until every call made so far is done and the writer has flushed; raise what failed."""
        self._worker.flush()

    def close(self) -> None:
        """Wait for everything, close the writer, and raise what failed."""
        worker = self._let_go(_Closed())
        worker.close()

    def _let_go(self, instead: Worker) -> Worker:
        atexit.unregister(self._at_exit)
        self._is_open = False
        worker, self._worker = self._worker, instead
        return worker

    def __enter__(self) -> Background:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except ReliveError as failed:
            if error is None:
                raise
            say(str(failed))  # the user's own error is the one to see

    def __reduce__(self) -> Any:
        raise ReliveError("a background writer can't leave its process; make another one there")

    def __del__(self) -> None:
        if self.__dict__.get("_is_open"):
            told = "a background writer was dropped open, and is written when Python ends; close it, or use `with`"
            warnings.warn(told, ResourceWarning, stacklevel=2)

    def _stay_with_parent(self) -> None:
        """In a forked child: the parent makes the calls that wait; nothing is made twice."""
        if self._is_open:
            self._let_go(_ForkedProxy()).abandon()


def _close_at_exit(worker: Worker, process: int) -> None:
    if process == os.getpid():
        try:
            worker.close()
        except ReliveError as failed:
            say(str(failed))


class _Closed:
    """What a closed writer does: nothing any more."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise ReliveError(f"{name} was called on a background writer that is closed; make a new one")

    def attribute(self, name: str) -> Any:
        return METHOD

    def flush(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


class _ForkedProxy(_Closed):
    """What a writer does in a forked child: it leaves the work to the parent, and drops calls made here."""

    def __init__(self) -> None:
        self._is_said = False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._is_said:
            self._is_said = True
            say(f"{name} was called in a forked process, where background writers do nothing; make one here instead")


_open: weakref.WeakSet[Background] = weakref.WeakSet()


def _after_fork() -> None:
    for proxy in list(_open):
        proxy._stay_with_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
