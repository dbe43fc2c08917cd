"""The driver that does nothing, at no cost: for recording that is switched off, failed, or over."""

from __future__ import annotations

from typing import Any

from relive.record.process import warn_once
from relive.record.session import Place, SilentDriver, session
from relive.store.journal import JournalClosed


class Off(SilentDriver):
    """Makes every call a no-op. Args still take their values from the command line."""

    def arg(self, name: str, default: Any) -> Any:
        if name not in session.kwargs:
            return default
        from relive.record.args import convert

        return convert(name, session.kwargs[name], default)


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
