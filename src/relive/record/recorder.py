"""The driver of a recorded run: turns each call into journal records; its failures never reach the training."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.errors import ArgError, ReliveError
from relive.model import MAX_NAME_CHARS, clean_name
from relive.record.blocks import RecordedBlock
from relive.record.loops import RecordedLoop, is_int32_range
from relive.record.off import NullJournal
from relive.record.process import raised_by_signal_handler, warn_once
from relive.record.provenance import Provenance, ignore_reads, is_secret
from relive.record.scalars import unwrap_scalar
from relive.record.session import Place, current_place, session
from relive.store.chunks import Chunks
from relive.store.journal import ROOT, Journal, JournalClosed, encode_value, slot_kinds

if TYPE_CHECKING:
    from relive.checkpoint.control import Checkpointer, LoopWatch, RankSchedule

_INT64 = range(-(1 << 63), 1 << 63)


class BlockStart(NamedTuple):
    """The start of a skipblock: its loop number, time, and source line."""

    loop: int
    at_s: float
    line: int


class Recorder:
    """Records the calls of one process of a run."""

    log: Callable[[str, Any, Place], Any]

    def __init__(self, run: str, journal: Journal, chunks: Chunks) -> None:
        self.run = run
        self.too_deep = [False]  # set when a value is lost because the recursion limit is reached
        self.journal = journal
        self.chunks = chunks
        self.root = Place(self, ROOT, 0, None)
        self.provenance: Provenance | None = None
        self.checks_kwargs = False  # worker processes leave this check to their parent
        self.stopped: Journal | None = None  # the journal after a write to it has failed
        self._checkpointer: Checkpointer | None = None
        self._blocks: dict[str, Checkpointer] = {}
        self.overhead: float | None = None
        self.every: int | None = None  # checkpoint interval for loops of instrumented scripts
        self.last_checkpoints: dict[str, dict[str, str]] = {}  # loop name → contents of its last checkpoint
        self.rank = 0
        self.shared_folder: Path | None = None  # the run folder, if other ranks record into it as well
        self.rank_schedule: RankSchedule | None = None  # when all ranks take their checkpoints
        self.source: Path | None = None  # the script, searched for `relive.arg` calls that come later

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

    # --- verbs --------------------------------------------------------------------------------------------------

    def arg(self, name: str, default: Any) -> Any:
        session.requested.add(name)
        given = name in session.kwargs
        value = _convert_kwarg(name, default) if given else default
        with self._guarded("arg-lost"):
            self.journal.line(
                "arg", name=clean_name(name), value=self._encode_arg(name, value),
                default=self._encode_arg(name, default), origin="kwargs" if given else "default",
            )  # fmt: skip
        return value

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """Records a setting that the script got from another source, e.g. argparse."""
        with self._guarded("arg-lost"):
            encoded = self._encode_arg(name, value)
            self.journal.line("arg", name=clean_name(name), value=encoded, default=encoded, origin=origin)

    @property
    def is_checkpointing(self) -> bool:
        return self._checkpointer is not None

    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        self._check_kwargs()
        return RecordedLoop(self, name, items)

    def data(self, name: str, source: Any, *, etag: str | None) -> Any:
        with self._guarded("data-lost"), _without_os_errors():
            if self.provenance is not None:
                self.provenance.declare(clean_name(name), source, etag)
        return source

    def artifact(self, source: Any, *, name: str | None) -> Any:
        with self._guarded("artifact-lost"):
            with ignore_reads(), _without_os_errors():  # reading an artifact does not make it an input of the run
                from relive.record.provenance import store_artifact

                stored = store_artifact(source, name, self.chunks)
            if stored is None:
                warn_once("artifact-missing", f"relive.artifact({source!r}): no such file; write it before the call")
            else:
                self.journal.line("artifact", **stored)
        return source

    def tag(self, name: str, value: Any) -> None:
        """Records a tag after the run has started."""
        with self._guarded("log-lost"):
            self.journal.line("tag", name=clean_name(name), value=self._encode(value))

    @contextlib.contextmanager
    def checkpointing(self, objects: dict[str, Any], *, overhead: float | None, every: int | None) -> Iterator[None]:
        outside = self._checkpointer
        with self._guarded("checkpoint-lost"):
            types = {name: f"{type(thing).__module__}.{type(thing).__qualname__}" for name, thing in objects.items()}
            self.journal.line("checkpointing", objects=types, threads=_torch_threads(), **_framework_fields(objects))
            self._checkpointer = self._make_checkpointer(objects, overhead, every)
        try:
            yield
        finally:
            with self._guarded("checkpoint-lost"):
                if self._checkpointer is not None:
                    self._checkpointer.close()
                    self.last_checkpoints |= self._checkpointer.kept
            self._checkpointer = outside

    def _make_checkpointer(self, objects: dict[str, Any], overhead: float | None, every: int | None) -> Checkpointer:
        from relive.checkpoint.control import Checkpointer, agree_on_schedule
        from relive.checkpoint.io import CheckpointWriter
        from relive.store.chunks import Packs

        writer = CheckpointWriter(Packs(self.chunks.folder / "packs"), self.chunks)
        allowed = self.overhead if overhead is None else overhead
        if self.rank_schedule is None and self.shared_folder is not None:
            self.rank_schedule = agree_on_schedule(self.shared_folder, self.rank)
        return Checkpointer(
            objects, writer, self.journal.line, overhead=allowed, every=every, moments=self.rank_schedule
        )

    def skipblock(self, name: str) -> RecordedBlock:
        return RecordedBlock(self, clean_name(name))

    def begin_block(self, name: str, frame: FrameType) -> BlockStart | None:
        with self._guarded("checkpoint-lost"):
            place = current_place.get()
            parent = place if place is not None and place.driver is self else self.root
            return BlockStart(self.enter_loop(name, parent, ()), time.perf_counter(), frame.f_lineno)
        return None

    def end_block(self, name: str, start: BlockStart | None, objects: dict[str, Any], frame: FrameType) -> None:
        if start is None:
            return
        self.leave_loop(start.loop, 1)
        with self._guarded("checkpoint-lost"):
            checkpointer = self._blocks.get(name)
            if checkpointer is None or not checkpointer.is_of(objects):
                checkpointer = self._blocks[name] = self._make_checkpointer(objects, None, None)
            checkpointer.end_block(name, start.loop, time.perf_counter() - start.at_s, start.line, frame)

    def finish_blocks(self) -> None:
        """Waits for block checkpoints that are still being written, and closes the rank schedule."""
        with self._guarded("checkpoint-lost"):
            for checkpointer in self._blocks.values():
                checkpointer.close()
            if self.rank_schedule is not None:
                self.rank_schedule.close()

    def forget_checkpoints(self) -> None:
        """Disables checkpoints in a forked child: the parent takes them, and its writer thread does not exist here."""
        self._checkpointer, self._blocks = None, {}
        self.rank_schedule = self.shared_folder = None

    def watch_loop(self, name: str, loop: int) -> LoopWatch | None:
        return self._checkpointer.enter(name, loop) if self._checkpointer is not None else None

    def begin_iteration(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None:
        with self._guarded("checkpoint-lost"):
            watch.begin_iteration(iteration, frame)

    def end_iteration(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None:
        with self._guarded("checkpoint-lost"):
            watch.end_iteration(iteration, frame)
            self._warn_left_out()

    def end_watch(self, watch: LoopWatch, iteration: int, frame: FrameType, *, exhausted: bool) -> None:
        with self._guarded("checkpoint-lost"):
            watch.end(iteration, frame, exhausted=exhausted)
            self._warn_left_out()

    def _warn_left_out(self) -> None:
        """Warns about state missing from the checkpoints of an instrumented script, whose author named no objects."""
        if session.instrumented is not None and self._checkpointer is not None and self._checkpointer.left_out:
            first = min(self._checkpointer.left_out)
            warn_once("state-left-out", f"{first}; replays of this run begin before it, or at the start")

    def note_line(self, kind: str, content: dict[str, Any], place: Place) -> None:
        """Appends a line to the journal, bound to the iteration of the given place."""
        with self._guarded("log-lost"):
            self.journal.line(kind, place.loop, place.iteration, **content)

    # --- loops --------------------------------------------------------------------------------------------------

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int:
        with self._guarded("loop-lost"):
            text = name if type(name) is str else clean_name(name)
            loop = self.journal.begin_loop(text, parent.loop, parent.iteration)
            if isinstance(items, range) and is_int32_range(items) and (items.start, items.step) != (0, 1):
                self.journal.append_loop_range(loop, items.start, items.step)
            return loop
        return ROOT

    def note_item(self, loop: int, iteration: int, item: Any) -> None:
        with self._guarded("loop-lost"):
            if type(item) is int and item in _INT64:
                self.journal.append_loop_item(loop, iteration, item)
            else:
                encoded = self._encode(item if type(item) is not str else item[:MAX_NAME_CHARS])
                self.journal.line("item", loop, iteration, item=encoded)

    def mark(self, loop: int, iteration: int) -> None:
        with self._guarded("loop-lost"):
            self.journal.mark(loop, iteration)

    def leave_loop(self, loop: int, iterations: int) -> None:
        with self._guarded("loop-lost"):
            self.journal.end_loop(loop, iterations)

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
        return journal.line("log", place.loop, place.iteration, name=journal.name_id(name), value=encoded)

    def _retry_log(self, name: Any, value: Any, place: Place, error: Exception) -> None:
        """Logs again under a cleaned name if the name is not a string; otherwise warns about the error."""
        if isinstance(error, JournalClosed):
            warn_once("log-lost", f"{name!r} was logged to a run that has ended; open another with relive.run()")
            return
        with self._guarded("log-lost"):
            if type(name) is str or isinstance(error, OSError | ReliveError) or raised_by_signal_handler(error):
                raise error
            self._append_value(clean_name(name), value, place)

    def _encode(self, value: Any) -> Any:
        with _without_os_errors():
            return encode_value(value, self.chunks.put)

    @contextlib.contextmanager
    def _guarded(self, slug: str) -> Iterator[None]:
        """Turns any failure inside into a warning, except invalid args and exceptions of signal handlers."""
        try:
            yield
        except ArgError:
            raise
        except Exception as error:  # the user's training must go on
            if raised_by_signal_handler(error):
                raise
            self._failed(slug, error)

    def _failed(self, slug: str, error: Exception) -> None:
        if isinstance(error, JournalClosed):
            return
        if isinstance(error, OSError):
            # A failed write will most likely fail again; stop writing, so that training isn't slowed down.
            self.stopped = self.stopped or self.journal
            self.journal = NullJournal()  # type: ignore[assignment]
            warn_once(
                "recording-stopped",
                f"{error}; this run is recorded up to here; free some disk space before the next one",
            )
        else:
            reason = str(error) if isinstance(error, ReliveError) else f"{type(error).__name__}: {error}"
            warn_once(slug, f"{reason}; this one was not recorded, everything else goes on")

    def _encode_arg(self, name: str, value: Any) -> Any:
        return {"$secret": ""} if is_secret(name) and value else self._encode(value)

    def _check_kwargs(self) -> None:
        """Raises at the first loop, when set-up is over, for a kwarg that no `relive.arg` requests."""
        if not self.checks_kwargs:
            return
        self.checks_kwargs = False
        unknown = [
            name for name in session.kwargs if name not in session.requested and not self._is_requested_later(name)
        ]
        if unknown:
            from relive.record.args import unknown_kwargs_message

            known = sorted(session.requested)
            session.requested.update(unknown)  # reported now, so not again at the end
            raise ArgError(unknown_kwargs_message(unknown, known))

    def _is_requested_later(self, name: str) -> bool:
        """Whether the source text of the script holds a `relive.arg` call with this name."""
        try:
            text = self.source.read_text(encoding="utf-8", errors="replace") if self.source else ""
        except OSError:
            return False
        return f'arg("{name}"' in text or f"arg('{name}'" in text


def _framework_fields(objects: dict[str, Any]) -> dict[str, Any]:
    """Returns the journal fields that name the framework which runs the loop, if there is one."""
    facts = [thing.told for thing in objects.values() if getattr(type(thing), "is_led", False)]
    return {"led": facts[0]} if facts else {}


def _torch_threads() -> int | None:
    """Returns the number of threads torch computes on: it changes the order, and so the result, of sums."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None else None


def _convert_kwarg(name: str, default: Any) -> Any:
    from relive.record.args import convert

    return convert(name, session.kwargs[name], default)


@contextlib.contextmanager
def _without_os_errors() -> Iterator[None]:
    """Converts an OSError inside into a ReliveError.

    A value that can't be read or is too large is skipped; only an OSError of the journal itself stops recording.
    """
    try:
        yield
    except OSError as error:
        if raised_by_signal_handler(error):
            raise
        raise ReliveError(str(error)) from error
