"""The driver of a replay: what each verb of the script does in a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from relive.hindsight.workers.replayed_loop import ReplayedBlock, ReplayedLoop
from relive.hindsight.workers.segment_driver import SegmentDriver
from relive.record import Place, current_place
from relive.record.provenance import REDACTED
from relive.store.journal import Journal, decode_value

_SECRET = {"$secret": ""}


def _has_secret(encoded: Any) -> bool:
    """Whether something was removed from this value when it was recorded."""
    if isinstance(encoded, str):
        return REDACTED in encoded
    items = encoded.values() if isinstance(encoded, dict) else encoded if isinstance(encoded, list) else ()
    return encoded == _SECRET or any(_has_secret(item) for item in items)


class Replayer(SegmentDriver):
    """Answers the verbs of the script. Once the last visited loop was left, the next verb ends the segment."""

    def _logger(self, journal: Journal) -> Callable[[str, Any, Place], Any]:
        write = super()._logger(journal)
        is_muted = not isinstance(journal, Journal)

        def log(name: str, value: Any, place: Place) -> Any:
            self._stop_if_left(name)
            self.progress.note()
            self.take_opened()
            if self.tracker is None or is_muted:
                return write(name, value, place)
            here = current_place.get() or self.root
            is_recorded = self.tracker.note_value(name, place, is_here=here is place)
            if is_recorded:
                write(name, value, place)
            self.check_record(is_recorded)
            return value if is_recorded else write(name, value, place)

        return log

    def arg(self, name: str, default: Any) -> Any:
        """The value that the run had, whatever the default is now."""
        self._stop_if_left()
        if name not in self._job.args:
            return default
        encoded = self._job.args[name]
        if not _has_secret(encoded):
            return decode_value(encoded, self.chunks.get)
        what = f"the arg {name!r} is secret" if encoded == _SECRET else f"a part of the arg {name!r} is secret"
        self.note(f"{what} and was not recorded; its default was used")
        return self._fill_in(encoded, default)

    def _fill_in(self, encoded: Any, default: Any) -> Any:
        """Decodes an arg with secrets in it: for each, the default at the same place is used."""
        if not _has_secret(encoded):
            return decode_value(encoded, self.chunks.get)
        if not isinstance(default, Mapping) or not isinstance(encoded, dict) or any(key[:1] == "$" for key in encoded):
            return default
        return {key: self._fill_in(item, default.get(key)) for key, item in encoded.items()}

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """Does nothing: the run has it already."""

    @property
    def is_checkpointing(self) -> bool:
        return bool(self._objects)

    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        self._stop_if_left()
        return ReplayedLoop(self, name, items)

    def data(self, name: str, source: Any, *, etag: str | None) -> Any:
        self._stop_if_left()
        return source

    def settle_data(self) -> None:
        """Does nothing: the run has its data version already."""

    def artifact(self, source: Any, *, name: str | None) -> Any:
        self._stop_if_left()
        return source

    @contextlib.contextmanager
    def checkpointing(self, objects: dict[str, Any], *, overhead: float | None, every: int | None) -> Iterator[None]:
        self._stop_if_left()
        self._objects.append(objects)
        try:
            yield
            self._stop_if_left()
        finally:
            self._objects.pop()

    def skipblock(self, name: str) -> Any:
        self._stop_if_left()
        return ReplayedBlock(self, name)
