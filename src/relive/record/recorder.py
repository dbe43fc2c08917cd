"""The driver of a recorded run: each verb becomes records in its journal, and no failure reaches the training."""

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
from relive.record.loops import RecordedLoop, has_short_range
from relive.record.off import NullJournal
from relive.record.process import is_users, warn_once
from relive.record.provenance import Provenance, is_secret, unheard
from relive.record.scalars import scalar_of
from relive.record.session import Place, here, session
from relive.store.chunks import Chunks
from relive.store.journal import ROOT, Journal, JournalClosed, encode_value, slot_kinds

if TYPE_CHECKING:
    from relive.checkpoint.control import Checkpointer, LoopWatch, RankSchedule

_INT64 = range(-(1 << 63), 1 << 63)


class BlockBegun(NamedTuple):
    """A skipblock that was stepped into: its number, when, and at which line."""

    loop: int
    at_s: float
    line: int


class Recorder:
    """Records one process of one run."""

    log: Callable[[str, Any, Place], Any]

    def __init__(self, run: str, journal: Journal, chunks: Chunks) -> None:
        self.run = run
        self.too_deep = [False]  # something was logged where no room was left to do it
        self.journal = journal
        self.chunks = chunks
        self.root = Place(self, ROOT, 0, None)
        self.provenance: Provenance | None = None
        self.checks_kwargs = False  # workers leave that to their parent
        self.stopped: Journal | None = None  # the journal that could not be written any more
        self._checkpointer: Checkpointer | None = None
        self._blocks: dict[str, Checkpointer] = {}
        self.overhead: float | None = None
        self.every: int | None = None  # for loops that nobody marked
        self.kept: dict[str, dict[str, str]] = {}  # what the last checkpoint of each loop holds
        self.rank = 0
        self.launched_in: Path | None = None  # the folder of a run that other ranks record, too
        self.moments: RankSchedule | None = None  # of checkpoints, agreed on with them
        self.source: Path | None = None  # the script, to see whether an unknown kwarg is asked for further down

    @property
    def journal(self) -> Journal:
        return self._journal

    @journal.setter
    def journal(self, journal: Journal) -> None:
        """What logging means hangs on where it goes: into a real journal by the shortest way."""
        self._journal = journal
        self.log = self._logger(journal)

    def _logger(self, journal: Journal) -> Callable[[str, Any, Place], Any]:
        is_real = isinstance(journal, Journal)  # not one that stands in for it
        return journal.logger(self._log_other, self._log_again, self.too_deep) if is_real else self._log_slowly

    # --- verbs --------------------------------------------------------------------------------------------------

    def arg(self, name: str, default: Any) -> Any:
        session.asked.add(name)
        given = name in session.kwargs
        value = _converted(name, default) if given else default
        with self._guarded("arg-lost"):
            self.journal.line(
                "arg", name=clean_name(name), value=self._arg_form(name, value), default=self._arg_form(name, default),
                origin="kwargs" if given else "default",
            )  # fmt: skip
        return value

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """A setting that the script has from elsewhere."""
        with self._guarded("arg-lost"):
            form = self._arg_form(name, value)
            self.journal.line("arg", name=clean_name(name), value=form, default=form, origin=origin)

    @property
    def is_checkpointing(self) -> bool:
        return self._checkpointer is not None

    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        self._check_kwargs()
        return RecordedLoop(self, name, items)

    def data(self, name: str, source: Any, *, etag: str | None) -> Any:
        with self._guarded("data-lost"), _reading():
            if self.provenance is not None:
                self.provenance.declare(clean_name(name), source, etag)
        return source

    def artifact(self, source: Any, *, name: str | None) -> Any:
        with self._guarded("artifact-lost"):
            with unheard(), _reading():  # reading what the run made is no input of the run
                from relive.record.provenance import describe_artifact

                described = describe_artifact(source, name, self.chunks)
            if described is None:
                warn_once("artifact-missing", f"relive.artifact({source!r}): no such file; write it before the call")
            else:
                self.journal.line("artifact", **described)
        return source

    def tag(self, name: str, value: Any) -> None:
        """Something about the run that is known only now."""
        with self._guarded("log-lost"):
            self.journal.line("tag", name=clean_name(name), value=self._form(value))

    @contextlib.contextmanager
    def checkpointing(self, objects: dict[str, Any], *, overhead: float | None, every: int | None) -> Iterator[None]:
        outside = self._checkpointer
        with self._guarded("checkpoint-lost"):
            types = {name: f"{type(thing).__module__}.{type(thing).__qualname__}" for name, thing in objects.items()}
            self.journal.line("checkpointing", objects=types, threads=_threads(), **_led(objects))
            self._checkpointer = self._make_checkpointer(objects, overhead, every)
        try:
            yield
        finally:
            with self._guarded("checkpoint-lost"):
                if self._checkpointer is not None:
                    self._checkpointer.close()
                    self.kept |= self._checkpointer.kept
            self._checkpointer = outside

    def _make_checkpointer(self, objects: dict[str, Any], overhead: float | None, every: int | None) -> Checkpointer:
        from relive.checkpoint.control import Checkpointer, agree_on_schedule
        from relive.checkpoint.io import Writer
        from relive.store.chunks import Packs

        writer = Writer(Packs(self.chunks.folder / "packs"), self.chunks)
        allowed = self.overhead if overhead is None else overhead
        if self.moments is None and self.launched_in is not None:
            self.moments = agree_on_schedule(self.launched_in, self.rank)
        return Checkpointer(objects, writer, self.journal.line, overhead=allowed, every=every, moments=self.moments)

    def skipblock(self, name: str) -> RecordedBlock:
        return RecordedBlock(self, clean_name(name))

    def begin_block(self, name: str, frame: FrameType) -> BlockBegun | None:
        with self._guarded("checkpoint-lost"):
            place = here.get()
            parent = place if place is not None and place.driver is self else self.root
            return BlockBegun(self.enter_loop(name, parent, ()), time.perf_counter(), frame.f_lineno)
        return None

    def end_block(self, name: str, begun: BlockBegun | None, objects: dict[str, Any], frame: FrameType) -> None:
        if begun is None:
            return
        self.leave_loop(begun.loop, 1)
        with self._guarded("checkpoint-lost"):
            keeper = self._blocks.get(name)
            if keeper is None or not keeper.is_of(objects):
                keeper = self._blocks[name] = self._make_checkpointer(objects, None, None)
            keeper.end_block(name, begun.loop, time.perf_counter() - begun.at_s, begun.line, frame)

    def finish_blocks(self) -> None:
        """Wait for the checkpoints of blocks that are still being written."""
        with self._guarded("checkpoint-lost"):
            for keeper in self._blocks.values():
                keeper.close()
            if self.moments is not None:
                self.moments.close()

    def forget_checkpoints(self) -> None:
        """In a forked child: checkpoints are the parent's business, and its writer's thread is not here."""
        self._checkpointer, self._blocks = None, {}
        self.moments = self.launched_in = None

    def watch_loop(self, name: str, loop: int) -> LoopWatch | None:
        return self._checkpointer.enter(name, loop) if self._checkpointer is not None else None

    def begin_iteration(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None:
        with self._guarded("checkpoint-lost"):
            watch.begin_iteration(iteration, frame)

    def end_iteration(self, watch: LoopWatch, iteration: int, frame: FrameType) -> None:
        with self._guarded("checkpoint-lost"):
            watch.end_iteration(iteration, frame)
            self._tell_left_out()

    def end_watch(self, watch: LoopWatch, iteration: int, frame: FrameType, *, exhausted: bool) -> None:
        with self._guarded("checkpoint-lost"):
            watch.end(iteration, frame, exhausted=exhausted)
            self._tell_left_out()

    def _tell_left_out(self) -> None:
        """Who never named an object can't know that one is missing from the checkpoints."""
        if session.instrumented is not None and self._checkpointer is not None and self._checkpointer.left_out:
            first = min(self._checkpointer.left_out)
            warn_once("state-left-out", f"{first}; replays of this run begin before it, or at the start")

    def note_line(self, kind: str, content: dict[str, Any], place: Place) -> None:
        """A line about what happened in an iteration, for whoever shows the run."""
        with self._guarded("log-lost"):
            self.journal.line(kind, place.loop, place.iteration, **content)

    # --- loops --------------------------------------------------------------------------------------------------

    def enter_loop(self, name: str, parent: Place, items: Iterable[Any]) -> int:
        with self._guarded("loop-lost"):
            known = name if type(name) is str else clean_name(name)
            loop = self.journal.begin_loop(known, parent.loop, parent.iteration)
            if isinstance(items, range) and has_short_range(items) and (items.start, items.step) != (0, 1):
                self.journal.loop_range(loop, items.start, items.step)
            return loop
        return ROOT

    def note_item(self, loop: int, iteration: int, item: Any) -> None:
        with self._guarded("loop-lost"):
            if type(item) is int and item in _INT64:
                self.journal.loop_item(loop, iteration, item)
            else:
                form = self._form(item if type(item) is not str else item[:MAX_NAME_CHARS])
                self.journal.line("item", loop, iteration, item=form)

    def mark(self, loop: int, iteration: int) -> None:
        with self._guarded("loop-lost"):
            self.journal.mark(loop, iteration)

    def leave_loop(self, loop: int, iterations: int) -> None:
        with self._guarded("loop-lost"):
            self.journal.end_loop(loop, iterations)

    # --- inside -------------------------------------------------------------------------------------------------

    def _log_slowly(self, name: str, value: Any, place: Place) -> Any:
        try:
            self._log_other(name, value, place)
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            try:
                self._log_again(name, value, place, error)
            except RecursionError:
                self.too_deep[0] = True
        return value

    def _log_other(self, name: str, value: Any, place: Place) -> None:
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
        elif (scalar := scalar_of(value)) is not None:
            number, code = scalar
            if isinstance(number, float):
                return journal.append_float(name, number, place.loop, place.iteration, code)
            return journal.append_int(name, number, place.loop, place.iteration, code)
        form = self._form(value)
        return journal.line("log", place.loop, place.iteration, name=journal.name_id(name), value=form)

    def _log_again(self, name: Any, value: Any, place: Place, error: Exception) -> None:
        """Perhaps the name was the trouble, if it is no string; whatever else it was is told."""
        if isinstance(error, JournalClosed):
            warn_once("log-lost", f"{name!r} was logged to a run that has ended; open another with relive.run()")
            return
        with self._guarded("log-lost"):
            if type(name) is str or isinstance(error, OSError | ReliveError) or is_users(error):
                raise error
            self._log_other(clean_name(name), value, place)

    def _form(self, value: Any) -> Any:
        with _reading():
            return encode_value(value, self.chunks.put)

    @contextlib.contextmanager
    def _guarded(self, slug: str) -> Iterator[None]:
        try:
            yield
        except ArgError:
            raise
        except Exception as error:  # the user's training must go on
            if is_users(error):
                raise
            self._failed(slug, error)

    def _failed(self, slug: str, error: Exception) -> None:
        if isinstance(error, JournalClosed):
            return
        if isinstance(error, OSError):
            # What can't be written now can't be written later either; stop trying, so that training isn't slowed.
            self.stopped = self.stopped or self.journal
            self.journal = NullJournal()  # type: ignore[assignment]
            warn_once("recording-stopped", f"{error}; this run is recorded up to here, free some space for the next")
        else:
            reason = str(error) if isinstance(error, ReliveError) else f"{type(error).__name__}: {error}"
            warn_once(slug, f"{reason}; this one was not recorded, everything else goes on")

    def _arg_form(self, name: str, value: Any) -> Any:
        return {"$secret": ""} if is_secret(name) and value else self._form(value)

    def _check_kwargs(self) -> None:
        """At the first loop, set-up is over: a kwarg that nothing asked for, or will ask for, is a typing error."""
        if not self.checks_kwargs:
            return
        self.checks_kwargs = False
        unknown = [name for name in session.kwargs if name not in session.asked and not self._asked_later(name)]
        if unknown:
            from relive.record.args import unknown_message

            known = sorted(session.asked)
            session.asked.update(unknown)  # told now, and not again at the end
            raise ArgError(unknown_message(unknown, known))

    def _asked_later(self, name: str) -> bool:
        try:
            text = self.source.read_text(encoding="utf-8", errors="replace") if self.source else ""
        except OSError:
            return False
        return f'arg("{name}"' in text or f"arg('{name}'" in text


def _led(objects: dict[str, Any]) -> dict[str, Any]:
    """Which library runs the loop, if one does."""
    told = [thing.told for thing in objects.values() if getattr(type(thing), "is_led", False)]
    return {"led": told[0]} if told else {}


def _threads() -> int | None:
    """On how many threads torch computes: sums come out differently on another number of them."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None else None


def _converted(name: str, default: Any) -> Any:
    from relive.record.args import convert

    return convert(name, session.kwargs[name], default)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """What can't be read, or is too big to keep, costs itself only; a journal that can't be written, the rest."""
    try:
        yield
    except OSError as error:
        if is_users(error):
            raise
        raise ReliveError(str(error)) from error
