"""The proxy of a background writer, and how it behaves when closed, in a forked child, and at exit."""

from __future__ import annotations

import atexit
import functools
import os
import warnings
import weakref
from typing import Any, Protocol

from relive.errors import ReliveError
from relive.record.background.deferred_calls import METHOD
from relive.record.process import print_to_stderr


class WriterWorker(Protocol):
    """Executes the calls. Only `flush` and `close` raise their failures."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def attribute(self, name: str) -> Any: ...  # METHOD if it is callable
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...  # in a forked child: release the parent's resources without waiting


class Background:
    """Proxy for a writer: its methods return at once, its other attributes are passed through."""

    def __init__(self, worker: WriterWorker) -> None:
        self._worker = worker
        self._is_open = True
        # The exit function holds the worker, so a proxy that is dropped without `close` still writes everything.
        self._at_exit = functools.partial(_close_at_exit, worker, os.getpid())
        atexit.register(self._at_exit)
        _open_proxies.add(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # looked up by `copy`, `pickle` and notebooks
            raise AttributeError(f"a background writer has no {name}")
        value = self._worker.attribute(name)
        return functools.partial(self._call, name) if value is METHOD else value

    def _call(self, name: str, *args: Any, **kwargs: Any) -> None:
        self._worker.call(name, args, kwargs)

    def flush(self) -> None:
        """Waits until every call so far is executed and the writer has flushed; raises failures."""
        self._worker.flush()

    def close(self) -> None:
        """Waits for all calls, closes the writer, and raises failures."""
        worker = self._replace_worker(_ClosedWorker())
        worker.close()

    def _replace_worker(self, new: WriterWorker) -> WriterWorker:
        atexit.unregister(self._at_exit)
        self._is_open = False
        worker, self._worker = self._worker, new
        return worker

    def __enter__(self) -> Background:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except ReliveError as failed:
            if error is None:
                raise
            print_to_stderr(str(failed))  # the user's own exception is the one to raise

    def __reduce__(self) -> Any:
        raise ReliveError("a background writer can't be sent to another process; create one there")

    def __del__(self) -> None:
        if self.__dict__.get("_is_open"):
            message = "a background writer was dropped without close(), and is written at exit; close it, or use `with`"
            warnings.warn(message, ResourceWarning, stacklevel=2)

    def _abandon(self) -> None:
        """In a forked child: leaves the queued calls to the parent, so that none is executed twice."""
        if self._is_open:
            self._replace_worker(_InheritedWorker()).abandon()


def _close_at_exit(worker: WriterWorker, process: int) -> None:
    if process == os.getpid():
        try:
            worker.close()
        except ReliveError as failed:
            print_to_stderr(str(failed))


class _ClosedWorker:
    """The worker of a closed writer: raises on calls, does nothing else."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise ReliveError(f"{name} was called on a background writer that is closed; create a new one")

    def attribute(self, name: str) -> Any:
        return METHOD

    def flush(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


class _InheritedWorker(_ClosedWorker):
    """The worker of a writer in a forked child: drops calls and warns once; the parent does the work."""

    def __init__(self) -> None:
        self._has_warned = False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._has_warned:
            self._has_warned = True
            print_to_stderr(
                f"{name} was called in a forked process, where background writers do nothing; create one here instead"
            )


_open_proxies: weakref.WeakSet[Background] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for proxy in list(_open_proxies):
        proxy._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
