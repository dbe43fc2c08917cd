"""The driver of a recorded run: turns each call into journal records; its failures never reach the training."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.errors import ArgError, ReliveError
from relive.model import clean_name
from relive.record.blocks import RecordedBlock
from relive.record.journal_driver import JournalDriver, without_os_errors
from relive.record.loops import RecordedLoop
from relive.record.process import (
    LaunchContext,
    Losses,
    PausedJournal,
    print_to_stderr,
    reason_of,
    user_frame,
    warn_once,
)
from relive.record.provenance import Provenance, SecretFilter, ignore_reads
from relive.record.session import current_place, session
from relive.store import JournalName
from relive.store.chunks import Chunks
from relive.store.journal import Journal, JournalClosed, line_schema, slot_kinds

if TYPE_CHECKING:
    from relive.checkpoint.control import Checkpointer, LoopWatch, RankSchedule


class BlockStart(NamedTuple):
    """The start of a skipblock: its loop number, time, and source line."""

    loop: int
    at_s: float
    line: int


class CheckpointingBlock(contextlib.AbstractContextManager[None]):
    """What `relive.checkpointing` returns: warns if it is dropped without having been entered."""

    def __init__(self, inside: contextlib.AbstractContextManager[None]) -> None:
        self._inside: contextlib.AbstractContextManager[None] | None = inside
        self._entered: contextlib.AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        self._entered, self._inside = self._inside, None
        if self._entered is None:
            raise ReliveError("this block was entered before; call relive.checkpointing(…) once more")
        self._entered.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        assert self._entered is not None
        return self._entered.__exit__(*error)

    def __del__(self) -> None:
        if self._inside is not None and not sys.is_finalizing():
            warn_once(
                "checkpointing-not-entered",
                "relive.checkpointing(…) takes no checkpoints by itself; write `with relive.checkpointing(…):` around"
                " the loop",
            )


class Recorder(JournalDriver):
    """Records the calls of one process of a run."""

    def __init__(self, run: str, journal: Journal, chunks: Chunks, secrets: SecretFilter | None = None) -> None:
        super().__init__(run, journal, chunks, secrets)
        self.provenance: Provenance | None = None
        self.checks_kwargs = False  # worker processes leave this check to their parent
        self.stopped: Journal | None = None  # the journal while it can't be written
        self.losses = Losses()
        self._checkpointer: Checkpointer | None = None
        self._blocks: dict[str, Checkpointer] = {}
        self.overhead: float | None = None
        self.rank = 0
        self.shared_folder: Path | None = None  # the run folder, if other ranks record into it as well
        self.rank_schedule: RankSchedule | None = None  # when all ranks take their checkpoints
        self.source: Path | None = None  # the script, searched for `relive.arg` calls that come later

    @classmethod
    def begin(cls, run: str, folder: Path, context: LaunchContext, *, is_shared: bool) -> Recorder:
        """Returns the recorder of a run that begins in this process."""
        rank, settings = context.launched.rank, context.settings
        journal = Journal(folder / JournalName(rank).stem)
        recorder = cls(run, journal, Chunks(context.home.chunks), SecretFilter(settings.secret_patterns))
        recorder.checks_kwargs = True
        recorder.overhead, recorder.every = settings.overhead, settings.every or None
        recorder.rank, recorder.shared_folder = rank, folder if is_shared else None
        recorder.source = Path(context.entry.script) if context.entry.script else None
        return recorder

    # --- verbs --------------------------------------------------------------------------------------------------

    def arg(self, name: str, default: Any) -> Any:
        session.requested.add(name)
        given = name in session.kwargs
        value = _convert_kwarg(name, default) if given else default
        with self.guarded("arg-lost"):
            used, origin = (value, "kwargs") if given and not _is_unused(name) else (default, "default")
            self.journal.line(
                line_schema.Arg, name=clean_name(name), value=self.encode_setting(name, used),
                default=self.encode_setting(name, default), origin=origin,
            )  # fmt: skip
        return value

    def note_arg(self, name: str, value: Any, *, origin: str) -> None:
        """Records a setting that the script got from another source, e.g. argparse."""
        with self.guarded("arg-lost"):
            encoded = self.encode_setting(name, value)
            self.journal.line(line_schema.Arg, name=clean_name(name), value=encoded, default=encoded, origin=origin)

    def note_generators(self, library: str) -> None:
        """Records the global generators of a library that the script has just imported: nobody has seeded them yet."""
        from relive.checkpoint.state import encoded_random_states

        with self.guarded("provenance-incomplete"):
            self.journal.line(line_schema.RandomStates, states=encoded_random_states(library))

    @property
    def is_checkpointing(self) -> bool:
        return self._checkpointer is not None

    def loop(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        self._check_kwargs()
        return RecordedLoop(self, name, items)

    def data(self, name: str, source: Any, *, etag: str | None) -> Any:
        with self.guarded("data-lost"), without_os_errors():
            if self.provenance is not None:
                self.provenance.declare(clean_name(name), source, etag)
        return source

    def artifact(self, source: Any, *, name: str | None) -> Any:
        with self.guarded("artifact-lost"):
            with ignore_reads(), without_os_errors():  # reading an artifact does not make it an input of the run
                from relive.record.provenance import store_artifact

                stored = store_artifact(source, name, self.chunks)
            if stored is None:
                warn_once("artifact-missing", f"relive.artifact({source!r}): no such file; write it before the call")
            else:
                shown = {key: self.secrets.text(text) for key, text in stored.items() if key in ("name", "path")}
                self.journal.line(line_schema.ArtifactKept, **stored | shown)
        return source

    def checkpointing(
        self, objects: dict[str, Any], *, overhead: float | None, every: int | None
    ) -> contextlib.AbstractContextManager[None]:
        return CheckpointingBlock(self._checkpoint_inside(objects, overhead, every))

    @contextlib.contextmanager
    def _checkpoint_inside(self, objects: dict[str, Any], overhead: float | None, every: int | None) -> Iterator[None]:
        outside = self._checkpointer
        with self.guarded("checkpoint-lost"):
            types = {name: f"{type(thing).__module__}.{type(thing).__qualname__}" for name, thing in objects.items()}
            self.journal.line(
                line_schema.CheckpointingBegun, objects=types, threads=_torch_threads(), **_framework_fields(objects)
            )
            self._checkpointer = self._make_checkpointer(objects, overhead, every)
        try:
            yield
        finally:
            with self.guarded("checkpoint-lost"):
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
            objects,
            writer,
            self.journal.line,
            overhead=allowed,
            every=every,
            schedule=self.rank_schedule,
            outside_files=self.provenance.outside_files if self.provenance is not None else dict,
        )

    def skipblock(self, name: str) -> RecordedBlock:
        return RecordedBlock(self, clean_name(name))

    def begin_block(self, name: str, frame: FrameType) -> BlockStart | None:
        with self.guarded("checkpoint-lost"):
            place = current_place.get()
            parent = place if place is not None and place.driver is self else self.root
            return BlockStart(self.enter_loop(name, parent, ()), time.perf_counter(), frame.f_lineno)
        return None

    def end_block(self, name: str, start: BlockStart | None, objects: dict[str, Any], frame: FrameType) -> None:
        if start is None:
            return
        self.leave_loop(start.loop, 1, slot_kinds.LEFT_EXHAUSTED)
        with self.guarded("checkpoint-lost"):
            checkpointer = self._blocks.get(name)
            if checkpointer is None or not checkpointer.is_of(objects):
                checkpointer = self._blocks[name] = self._make_checkpointer(objects, None, None)
            checkpointer.end_block(name, start.loop, time.perf_counter() - start.at_s, start.line, frame)

    def settle_data(self) -> None:
        if self.provenance is not None:
            self.provenance.settle()

    def finish_blocks(self) -> None:
        """Waits for block checkpoints that are still being written, and closes the rank schedule."""
        with self.guarded("checkpoint-lost"):
            for checkpointer in self._blocks.values():
                checkpointer.close()
            if self.rank_schedule is not None:
                self.rank_schedule.close()

    def forget_checkpoints(self) -> None:
        """Disables checkpoints in a forked child: the parent takes them, and its writer thread does not exist here."""
        self._checkpointer, self._blocks = None, {}
        self.rank_schedule = self.shared_folder = None

    def continue_in_child(self, journal: Journal) -> None:
        super().continue_in_child(journal)
        self.checks_kwargs = False
        self.provenance = None

    def watch_loop(self, name: str, loop: int, made_in: CodeType | None, items: Any) -> GuardedWatch | None:
        if self._checkpointer is None:
            return None
        watch = None
        with self.guarded("checkpoint-lost"):
            watch = self._checkpointer.enter(name, loop, sys._getframe(2), made_in, items)
        return GuardedWatch(self, watch) if watch is not None else None

    def warn_left_out(self) -> None:
        """Warns about state missing from the checkpoints of an instrumented script, whose author named no objects."""
        if session.instrumented is not None and self._checkpointer is not None and self._checkpointer.left_out:
            first = min(self._checkpointer.left_out)
            warn_once("state-left-out", f"{first}; replays of this run begin before it, or at the start")

    # --- private ------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Goes on recording if the journal can be written again, and records what was lost until then."""
        if isinstance(self.journal, PausedJournal) and (journal := self.journal.resume()) is not None:
            self.journal, self.stopped = journal, None
        if self.stopped is None and isinstance(self.journal, Journal):
            with self.guarded("log-lost"):
                self.losses.record(self.journal.line)

    def end_stopped(self, end: dict[str, Any]) -> None:
        """Records the end, and what was lost, in the space that closing the journal has freed; else on stderr."""
        if self.stopped is None:
            return
        try:
            self.losses.record(self.stopped.last_line)
            self.stopped.last_line(line_schema.RunEnded, **end)
        except OSError:
            print_to_stderr(f"not recorded of run {self.run}: {self.losses.describe()}")
            raise

    def _failed(self, slug: str, error: Exception, what: str) -> None:
        if isinstance(error, JournalClosed):
            return
        self.losses.note(self.secrets.message(what), self.secrets.message(reason_of(error)))
        if isinstance(error, OSError):
            # A failed write will most likely fail again; pause, so that training isn't slowed down.
            if isinstance(self.journal, Journal):
                self.stopped = self.journal
                self.journal = PausedJournal(self.journal, self.losses, reason_of(error))  # type: ignore[assignment]
            warn_once(
                "recording-stopped",
                f"{error}; nothing is recorded until the journal can be written again; free some disk space",
            )
        else:
            reason = str(error) if isinstance(error, ReliveError) else f"{type(error).__name__}: {error}"
            warn_once(slug, f"{reason}; this one was not recorded, everything else goes on")

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


class GuardedWatch:
    """A loop inside a `checkpointing` block. A checkpoint that fails is lost, and the training goes on."""

    def __init__(self, recorder: Recorder, watch: LoopWatch) -> None:
        self.is_main = watch.is_main
        self._recorder = recorder
        self._watch = watch

    def begin_iteration(self, iteration: int, frame: FrameType) -> None:
        with self._recorder.guarded("checkpoint-lost"):
            self._watch.begin_iteration(iteration, frame)

    def end_iteration(self, iteration: int, frame: FrameType) -> None:
        if not self.is_main:
            return  # its end is what counts
        with self._recorder.guarded("checkpoint-lost"), ignore_reads():  # files that a checkpoint holds are no inputs
            self._watch.end_iteration(iteration, frame)
            self._recorder.warn_left_out()

    def end(self, iteration: int, frame: FrameType | None, *, exhausted: bool) -> None:
        with self._recorder.guarded("checkpoint-lost"), ignore_reads():
            self._watch.end(iteration, frame, exhausted=exhausted)
            self._recorder.warn_left_out()


def _framework_fields(objects: dict[str, Any]) -> dict[str, Any]:
    """Returns the journal fields that name the framework which runs the loop, if there is one."""
    facts = [thing.journal_fields for thing in objects.values() if getattr(type(thing), "runs_the_loop", False)]
    return {"led": facts[0]} if facts else {}


def _torch_threads() -> int | None:
    """Returns the number of threads torch computes on: it changes the order, and so the result, of sums."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None else None


def _is_unused(name: str) -> bool:
    """Whether the statement that asked for an arg drops it, with a warning: then the script has another value."""
    from relive.record.args import is_result_dropped

    if not is_result_dropped(user_frame(), name):
        return False
    warn_once(
        "arg-unused",
        f"--kwargs {name}=… changes nothing: the script does not use what relive.arg({name!r}, …) returns;"
        f" the value that it passes is recorded; write {name} = relive.arg({name!r}, …)",
        about=name,
    )
    return True


def _convert_kwarg(name: str, default: Any) -> Any:
    from relive.record.args import convert

    return convert(name, session.kwargs[name], default)
