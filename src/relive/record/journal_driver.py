"""What recording and replaying share: calls become records of a journal, and failures are told to the driver."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from relive.errors import ArgError, ReliveError
from relive.model import MAX_NAME_CHARS, PRUNED, clean_name
from relive.record.loops import is_int32_range
from relive.record.process import raised_by_signal_handler, warn_once
from relive.record.provenance import SecretFilter, hides
from relive.record.scalars import unwrap_scalar
from relive.record.session import Place
from relive.store.chunks import Chunks
from relive.store.journal import ROOT, Journal, JournalClosed, encode_value, line_schema, slot_kinds

_INT64 = range(-(1 << 63), 1 << 63)


class JournalDriver(ABC):
    """Writes values, loops and lines of one process of a run to a journal. Subclasses say what each verb does."""

    log: Callable[[str, Any, Place], Any]

    def __init__(self, run: str, journal: Journal, chunks: Chunks, secrets: SecretFilter | None = None) -> None:
        self.run = run
        self.secrets = secrets or SecretFilter()
        self._logged = self.secrets.logged
        self.too_deep = [False]  # set when a value is lost because the recursion limit is reached
        self.journal = journal
        self.chunks = chunks
        self.root = Place(self, ROOT, 0, None)
        self.is_pruned = False  # a pruner has stopped the run
        self.every: int | None = None  # checkpoint interval for loops of instrumented scripts
        self.last_checkpoints: dict[str, dict[str, str]] = {}  # loop name → contents of its last checkpoint

    @property
    def journal(self) -> Journal:
        return self._journal

    @journal.setter
    def journal(self, journal: Journal) -> None:
        """Also selects the `log` function for the journal: a real journal provides the fast one."""
        self._journal = journal
        self.log = self._logger(journal)

    def _logger(self, journal: Journal) -> Callable[[str, Any, Place], Any]:
        is_real = isinstance(journal, Journal)  # not a null, ended or child journal
        return journal.logger(self._append_value, self._retry_log, self.too_deep) if is_real else self._log_slowly

    @property
    def home_path(self) -> Path:
        return self.chunks.folder.parent

    def continue_in_child(self, journal: Journal) -> None:
        """In a forked child: writes to a journal of its own from now on."""
        self.journal = journal

    # --- verbs --------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def is_checkpointing(self) -> bool: ...
    @abstractmethod
    def arg(self, name: str, default: Any) -> Any: ...
    @abstractmethod
    def note_arg(self, name: str, value: Any, *, origin: str) -> None: ...
    @abstractmethod
    def note_generators(self, library: str) -> None: ...
    @abstractmethod
    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]: ...
    @abstractmethod
    def data(self, name: str, source: Any, *, etag: str | None) -> Any: ...
    @abstractmethod
    def artifact(self, source: Any, *, name: str | None) -> Any: ...
    @abstractmethod
    def skipblock(self, name: str) -> Any: ...
    @abstractmethod
    def checkpointing(
        self, objects: dict[str, Any], *, overhead: float | None, every: int | None
    ) -> AbstractContextManager[None]: ...
    @abstractmethod
    def settle_data(self) -> None: ...
    @abstractmethod
    def _failed(self, slug: str, error: Exception, what: str) -> None:
        """Called when a record was not written."""

    # --- lines --------------------------------------------------------------------------------------------------

    def tag(self, name: str, value: Any) -> None:
        """Records a tag after the run has started."""
        self.is_pruned = self.is_pruned or name == PRUNED
        with self.guarded("log-lost"):
            self.journal.line(line_schema.Tag, name=clean_name(name), value=self.encode_setting(name, value))

    def note_line(self, kind: type[line_schema.JournalLine], content: dict[str, Any], place: Place) -> None:
        """Appends a line to the journal, bound to the iteration of the given place."""
        with self.guarded("log-lost"):
            self.journal.line(kind, place.loop, place.iteration, **self.secrets.fields(content))

    # --- loops --------------------------------------------------------------------------------------------------

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int:
        with self.guarded("loop-lost"):
            text = name if type(name) is str else clean_name(name)
            loop = self.journal.begin_loop(text, parent.loop, parent.iteration)
            if isinstance(items, range) and is_int32_range(items) and (items.start, items.step) != (0, 1):
                self.journal.append_loop_range(loop, items.start, items.step)
            return loop
        return ROOT

    def note_item(self, loop: int, iteration: int, item: Any) -> None:
        with self.guarded("loop-lost"):
            if type(item) is int and item in _INT64:
                self.journal.append_loop_item(loop, iteration, item)
            else:
                encoded = self._encode(item if type(item) is not str else item[:MAX_NAME_CHARS])
                self.journal.line(line_schema.LoopItem, loop, iteration, item=encoded)

    def mark(self, loop: int, iteration: int) -> None:
        with self.guarded("loop-lost"):
            self.journal.mark(loop, iteration)

    def leave_loop(self, loop: int, iterations: int, how: int = slot_kinds.LEFT_UNKNOWN) -> None:
        with self.guarded("loop-lost"):
            self.journal.end_loop(loop, iterations, how)

    # --- private ------------------------------------------------------------------------------------------------

    def _log_slowly(self, name: str, value: Any, place: Place) -> Any:
        try:
            self._append_value(name, value, place)
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            try:
                self._retry_log(name, value, place, error)
            except RecursionError:
                self.too_deep[0] = True
        return value

    def _append_value(self, name: str, value: Any, place: Place) -> None:
        kind = type(value)
        journal = self.journal
        if kind is float:
            return journal.append_float(name, value, place.loop, place.iteration)
        if kind is int:
            if value in _INT64:
                return journal.append_int(name, value, place.loop, place.iteration)
        elif kind is bool:
            return journal.append_int(name, value, place.loop, place.iteration, slot_kinds.BOOL)
        elif value is None:
            return journal.append_int(name, 0, place.loop, place.iteration, slot_kinds.NONE)
        elif (scalar := unwrap_scalar(value)) is not None:
            number, code = scalar
            if isinstance(number, float):
                return journal.append_float(name, number, place.loop, place.iteration, code)
            return journal.append_int(name, number, place.loop, place.iteration, code)
        encoded = self._encode(value)
        return journal.line(
            line_schema.ValueLogged, place.loop, place.iteration, name=journal.name_id(name), value=encoded
        )

    def _retry_log(self, name: Any, value: Any, place: Place, error: Exception) -> None:
        """Logs again under a cleaned name if the name is not a string; otherwise warns about the error."""
        if isinstance(error, JournalClosed):
            warn_once("log-lost", f"{name!r} was logged to a run that has ended; open another with relive.run()")
            return
        with self.guarded("log-lost", f"values of {name if type(name) is str else type(name).__name__}"):
            if type(name) is str or isinstance(error, OSError | ReliveError) or raised_by_signal_handler(error):
                raise error
            self._append_value(clean_name(name), value, place)

    def _encode(self, value: Any) -> Any:
        with without_os_errors():
            return encode_value(value, self.chunks.put, self._logged)

    def encode_setting(self, name: str, value: Any) -> Any:
        """Encodes an arg or a tag, without what is a secret by its name or its shape."""
        if hides(str(name), value):
            self.secrets.remember(value)
            return {"$secret": ""}
        with without_os_errors():
            return encode_value(value, self.chunks.put, self.secrets.settings)

    @contextlib.contextmanager
    def guarded(self, slug: str, what: str = "") -> Iterator[None]:
        """Passes any failure inside to `_failed`, except invalid args and exceptions of signal handlers.

        `what` is lost then; by default, what the slug says.
        """
        try:
            yield
        except ArgError:
            raise
        except Exception as error:  # the user's training must go on
            if raised_by_signal_handler(error):
                raise
            self._failed(slug, error, what or f"{slug.partition('-')[0]}s")


@contextlib.contextmanager
def without_os_errors() -> Iterator[None]:
    """Converts an OSError inside into a ReliveError.

    A value that can't be read or is too large is skipped; only an OSError of the journal itself stops recording.
    """
    try:
        yield
    except OSError as error:
        if raised_by_signal_handler(error):
            raise
        raise ReliveError(str(error)) from error
