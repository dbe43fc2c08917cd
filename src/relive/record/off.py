"""The driver that does nothing, at no cost: recording switched off, or given up."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from relive.record.blocks import PlainBlock
from relive.record.process import warn_once
from relive.record.session import Place, session
from relive.store.journal import JournalClosed


class Off:
    """Answers every call as if relive were not there (args still come from the command line)."""

    is_checkpointing = True  # there is nothing to begin
    every: int | None = None

    def __init__(self) -> None:
        self.root = Place(self, 0, 0, None)
        self.kept: dict[str, dict[str, str]] = {}

    def log(self, name: str, value: Any, place: Place) -> Any:
        return value

    def arg(self, name: str, default: Any) -> Any:
        if name not in session.kwargs:
            return default
        from relive.record.args import convert

        return convert(name, session.kwargs[name], default)

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """Nothing is recorded."""

    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        return items

    def data(self, name: str, source: Any, *, etag: str | None) -> Any:
        return source

    def artifact(self, source: Any, *, name: str | None) -> Any:
        return source

    def skipblock(self, name: str) -> PlainBlock:
        return PlainBlock()

    def checkpointing(
        self, objects: dict[str, Any], *, overhead: float | None, every: int | None
    ) -> AbstractContextManager[None]:
        return nullcontext()


class Ended(Off):
    """What is left when the run was closed because Python is ending."""

    def log(self, name: str, value: Any, place: Place) -> Any:
        warn_once("log-lost", f"{name!r} was logged when the run had ended, as Python did; log it earlier")
        return value


class NullJournal:
    """A journal that keeps nothing: what a recorder writes to after its real one failed."""

    def __getattr__(self, name: str) -> Any:
        return _nothing


class EndedJournal:
    """The journal of a run that has ended. The real one is let go of, and with it its files."""

    def __getattr__(self, name: str) -> Any:
        raise JournalClosed("the run has ended; open another to log more")


def _nothing(*_args: Any, **_kwargs: Any) -> int:
    return 1
