"""The driver that does nothing, at no cost: for recording that is switched off, failed, or over."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from relive.record.blocks import PlainBlock
from relive.record.process import warn_once
from relive.record.session import Place, session
from relive.store.journal import JournalClosed

if TYPE_CHECKING:
    from pathlib import Path

    from relive.store.journal import line_schema


class Off:
    """Makes every call a no-op. Args still take their values from the command line."""

    is_checkpointing = True  # so that no caller tries to start checkpointing
    run = ""
    home_path: Path | None = None
    every: int | None = None

    def __init__(self) -> None:
        self.root = Place(self, 0, 0, None)
        self.last_checkpoints: dict[str, dict[str, str]] = {}

    def log(self, name: str, value: Any, place: Place) -> Any:
        return value

    def arg(self, name: str, default: Any) -> Any:
        if name not in session.kwargs:
            return default
        from relive.record.args import convert

        return convert(name, session.kwargs[name], default)

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """Does nothing."""

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

    def tag(self, name: str, value: Any) -> None:
        """Does nothing."""

    def note_line(self, kind: type[line_schema.JournalLine], content: dict[str, Any], place: Place) -> None:
        """Does nothing."""

    def settle_data(self) -> None:
        """Does nothing."""


class EndedDriver(Off):
    """The driver after the run was closed because Python is exiting: warns about lost values."""

    def log(self, name: str, value: Any, place: Place) -> Any:
        warn_once("log-lost", f"{name!r} was logged after the run ended, while Python was exiting; log it earlier")
        return value


class NullJournal:
    """A journal that discards every line. Replaces the real one after a write has failed."""

    def __getattr__(self, name: str) -> Any:
        return _do_nothing


class EndedJournal:
    """The journal of a run that has ended: raises on use. Replaces the real one, so that its files are released."""

    def __getattr__(self, name: str) -> Any:
        raise JournalClosed("the run has ended; open another to log more")


def _do_nothing(*_args: Any, **_kwargs: Any) -> int:
    return 1
