"""A worker process: runs the script of a version as it was started then, with a replayer as its driver."""

from __future__ import annotations

import atexit
import ctypes
import os
import runpy
import signal
import sys
import threading
import traceback
import types
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from relive.errors import Damaged, GraphNotKept
from relive.handsfree import ScriptStart, notebook_instruments
from relive.handsfree import run_script as start_hands_free
from relive.hindsight.notebooks import RecordedCell, run_cells
from relive.hindsight.workers.confinement import PrivateCopies, WriteGuard, restrict_writes
from relive.hindsight.workers.process_exit import end_process
from relive.hindsight.workers.replayer import Replayer
from relive.hindsight.workers.supervision import dump_on_signal
from relive.hindsight.workers.unheld_state import OutsideReads, OutsideRecord
from relive.hindsight.workers.wire import Job
from relive.model import FINISHED
from relive.record import Off, outcome_of, session
from relive.record.process import NotebookCells
from relive.record.provenance import InputFilter, set_ignored_signals

_DEATH_SIGNAL = 1  # of prctl(2): PR_SET_PDEATHSIG
_OF_THE_STATEMENT = (NameError, SyntaxError, ImportError)  # errors that a restore does not cause


def main(path: str) -> int:
    """Executes the job in a file; returns 0 if the script succeeded."""
    job = Job.read(Path(path))
    dump_on_signal(Path(job.folder))
    set_ignored_signals(job.ignored_signals)
    os.chdir(job.cwd)
    sys.argv = [job.argv0 or job.script, *job.argv]
    sys.path[:0] = job.search
    copies = str(Path(job.folder) / "copies")
    guard = WriteGuard(
        job.protected, job.writable, begun_s=job.begun_s, copies=copies, beginnings=job.beginnings
    )  # fmt: skip
    reads = _outside_reads(job, guard.copies) if guard.copies is not None else None
    if reads is not None:
        # First: it forks, and none of what follows is for the process that it forks.
        guard.is_monitored = reads.start_monitor(guard.before_write)
    replayer = Replayer(job)
    session.first = session.driver = Off() if job.nth else replayer
    session.open_replayed_run = _RunSelector(replayer, job).next
    guard.start()
    restrict_writes(job.protected, job.writable)
    if reads is not None:
        replayer.watch_outside(reads)
    if job.instrumented is not None and not job.nth and not job.cells:
        replayer.begin_run()  # of a hands-free run: before the script
    try:
        _run_script(job, replayer)
    except BaseException as error:  # noqa: BLE001 - the parent reports whatever the script raised
        return _end_run(replayer, job, error)
    return _end_run(replayer, job, None)


def _outside_reads(job: Job, copies: PrivateCopies) -> OutsideReads:
    record = OutsideRecord(job.started_s, job.ended_s, job.outside)
    inside = [*job.protected, *job.writable]
    return OutsideReads(record, InputFilter(job.root, job.home), inside, copies, job.private, job.missing)


def leave(code: int) -> NoReturn:
    """Ends the process, after the exit handlers of the script."""
    threading._shutdown()  # type: ignore[attr-defined]  # in Python's order: threads first, then handlers
    atexit._run_exitfuncs()
    end_process(code)


class _RunSelector:
    """Decides what each `with relive.run()` of the script does: one is replayed, the others are not recorded."""

    def __init__(self, replayer: Replayer, job: Job) -> None:
        self._replayer = replayer
        self._job = job
        self._opened = 0

    def next(self) -> _ReplayedRun | None:
        self._opened += 1
        if self._opened != self._job.nth:
            return None
        if self._job.instrumented is not None:
            self._replayer.begin_run()
        return _ReplayedRun(self._replayer, self._job)


class _ReplayedRun:
    """Stands in for an opened run. The process ends when it is closed."""

    def __init__(self, replayer: Replayer, job: Job) -> None:
        self.recorder = replayer
        self.run = job.run
        self._job = job

    def close(self, error: BaseException | None) -> None:
        code = _end_run(self.recorder, self._job, error)
        if not code:
            self.recorder.end()
        if error is None:
            self.recorder.wait_for_others()
        end_process(code)


class _CellWatch:
    """Tells cells that were executed again from others, as when they were recorded: from the run's first cell on."""

    def __init__(self, replayer: Replayer, job: Job) -> None:
        self._replayer = replayer
        self._is_hands_free = job.instrumented is not None
        self._cells: NotebookCells | None = None

    def before_cell(self, cell: RecordedCell, text: str) -> None:
        self._replayer.progress.note()
        notebook_instruments.recorded = (cell.python, text) if self._is_hands_free else None
        if self._cells is not None:
            self._cells.before_cell(SimpleNamespace(cell_id=cell.id, raw_cell=cell.source))
        elif not cell.is_before:
            self._cells = NotebookCells(self._replayer, None, cell.key)
            if self._is_hands_free:
                self._replayer.begin_run()  # by the cell that loads the extension


def _end_run(replayer: Replayer, job: Job, error: BaseException | None) -> int:
    """Finishes the segment; returns the exit code. The error that ended the recorded run is not a failure now."""
    outcome, described = outcome_of(error) if error is not None else (FINISHED, None)
    is_over = error is None or outcome == FINISHED
    is_recorded_error = not is_over and _is_same_error(described or {}, job.ending or {})
    tracker = replayer.tracker
    is_past = tracker is not None and not tracker.is_whole and tracker.is_at_end  # what follows is not in the record
    if error is None or is_over or is_recorded_error or is_past:
        # Exit handlers of the script are still part of its run.
        as_recorded = is_recorded_error and is_past if tracker is not None and not tracker.is_whole else is_over
        replayer.report.ended_early |= not is_over
        replayer.end = partial(
            replayer.finish, is_over=is_over and (tracker is None or tracker.is_whole), as_recorded=as_recorded
        )
        session.at_exit.append(replayer.end)
        if is_over:
            session.at_exit.append(replayer.wait_for_others)
        return 0
    if isinstance(error, GraphNotKept):
        replayer.report.needs_start = str(error).partition(";")[0]
    elif replayer.report.restores and not isinstance(error, (Damaged, *_OF_THE_STATEMENT)):
        # The run did not meet this error: something that the script needs is not in the checkpoint.
        replayer.report.needs_start = f"after a checkpoint was restored, the script failed ({_describe_error(error)})"
    trace = "".join(traceback.format_exception(error))
    replayer.finish(ok=False, error=_describe_error(error), traceback=trace)
    return 1


def _is_same_error(error: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Whether an error is of the recorded type, and of the same file as far as both are known."""
    files = [os.path.basename(str(one["place"]).rpartition(":")[0]) for one in (error, recorded) if one.get("place")]
    return error.get("type") == recorded.get("type") and len(set(files)) <= 1


def _run_script(job: Job, replayer: Replayer) -> None:
    if job.cells:
        if job.instrumented is not None:
            notebook_instruments.start = _hands_free_start(job, job.instrumented)
        run_cells(Path(job.script), job.cells, Path(job.folder), _CellWatch(replayer, job).before_cell)
        return
    if job.instrumented is not None:
        start_hands_free(_hands_free_start(job, job.instrumented))
        return
    if job.module:
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)
        return
    main_module = types.ModuleType("__main__")
    main_module.__file__ = job.script
    sys.modules["__main__"] = main_module
    code = compile(Path(job.script).read_bytes(), job.script, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)


def _hands_free_start(job: Job, instrumented: dict[str, Any]) -> ScriptStart:
    only = {(file, line): {name for f, n, name in job.only if (f, n) == (file, line)} for file, line, _ in job.only}
    recorded = {os.path.realpath(file): text for file, text in job.recorded.items()}
    return ScriptStart(
        job.module or job.script, job.argv, bool(job.module), job.tree, instrumented["sources"], only=only,
        holds_back=bool(instrumented.get("holds_back")), recorded=recorded, argv0=job.argv0,
    )  # fmt: skip


def _describe_error(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the script ended with exit code {error.code}"
    if isinstance(error, Damaged):
        return f"{error.args[0].partition(';')[0]}; replay without checkpoints, with --from-start"
    if isinstance(error, EOFError):
        return "the script reads from the terminal, which a replay does not have; pass the input in another way"
    if isinstance(error, PermissionError) and error.errno:
        return f"{error}: a replay may write to its own folder only; write below the working folder of the script"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error}; put it back as it was when the run began, and name it in relive.data(…) from now on"
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; install it to replay this version"
    where = "".join(f" ({note})" for note in getattr(error, "__notes__", ()) if note.startswith("in cell "))
    return f"{type(error).__name__}: {error}{where}"


def _end_with(parent: int) -> None:
    """Has this process killed when the one that waits for its report is killed; other systems than Linux can't."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it was too late to ask
            os._exit(1)


if __name__ == "__main__":
    _end_with(int(sys.argv[2]))
    leave(main(sys.argv[1]))
