"""A worker: runs the script of a version as it was started then, with a replayer as its driver."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
import traceback
import types
from functools import partial
from pathlib import Path
from typing import NoReturn

from relive.errors import Damaged
from relive.handsfree import ScriptStart
from relive.handsfree import run as start_hands_free
from relive.hindsight.workers.landlock import fence
from relive.hindsight.workers.process_exit import end_process
from relive.hindsight.workers.replayer import Replayer
from relive.hindsight.workers.wire import Job
from relive.hindsight.workers.write_guard import WriteGuard
from relive.model import FINISHED
from relive.record import Off, ended_by, session


def main(path: str) -> int:
    """Do the job described in a file; the exit code says whether the script came through."""
    job = Job.read(Path(path))
    os.chdir(job.cwd)
    sys.argv = [job.script, *job.argv]
    sys.path[:0] = job.search
    replayer = Replayer(job)
    session.first = session.driver = Off() if job.nth else replayer
    session.stand_in = _Runs(replayer, job).next
    WriteGuard(job.protected, job.writable).start()
    fence(job.protected, job.writable)
    try:
        _run(job)
    except BaseException as error:  # noqa: BLE001 - whatever the script raised is told to the user, by the parent
        return _ended(replayer, job, error)
    return _ended(replayer, job, None)


def leave(code: int) -> NoReturn:
    """End the process, after what the script does at exit."""
    threading._shutdown()  # type: ignore[attr-defined]  # as Python does it: threads first, then handlers
    atexit._run_exitfuncs()
    end_process(code)


class _Runs:
    """What each `with relive.run()` of the script means: one of them is replayed, the others are only run."""

    def __init__(self, replayer: Replayer, job: Job) -> None:
        self._replayer = replayer
        self._job = job
        self._opened = 0

    def next(self) -> _Run | None:
        self._opened += 1
        return _Run(self._replayer, self._job) if self._opened == self._job.nth else None


class _Run:
    """Stands where an opened run would; when it is left there is nothing more to do."""

    def __init__(self, replayer: Replayer, job: Job) -> None:
        self.recorder = replayer
        self.run = job.run
        self._job = job

    def close(self, error: BaseException | None) -> None:
        code = _ended(self.recorder, self._job, error)
        if not code:
            self.recorder.finish(is_over=error is None)
        if error is None:
            self.recorder.wait_for_others()
        end_process(code)


def _ended(replayer: Replayer, job: Job, error: BaseException | None) -> int:
    """The script, or its run, is over. The error that ended the run when it was recorded is no failure now."""
    outcome, described = ended_by(error) if error is not None else (FINISHED, None)
    then = job.ending or {}
    if error is None or outcome == FINISHED or (described or {}).get("type") == then.get("type"):
        # What the script does at exit is still part of its run.
        is_over = error is None or outcome == FINISHED
        replayer.report.ended_early = not is_over
        session.at_exit.append(partial(replayer.finish, is_over=is_over))
        if is_over:
            session.at_exit.append(replayer.wait_for_others)
        return 0
    trace = "".join(traceback.format_exception(error))
    replayer.finish(ok=False, error=_told(error), traceback=trace)
    return 1


def _run(job: Job) -> None:
    if job.instrumented is not None:
        only = {(file, line): {name for f, n, name in job.only if (f, n) == (file, line)} for file, line, _ in job.only}
        target, sources = job.module or job.script, job.instrumented["sources"]
        start_hands_free(ScriptStart(target, job.argv, bool(job.module), job.tree, sources, only=only))
        return
    if job.module:
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)
        return
    main_module = types.ModuleType("__main__")
    main_module.__file__ = job.script
    sys.modules["__main__"] = main_module
    code = compile(Path(job.script).read_bytes(), job.script, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)


def _told(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the script ended with exit code {error.code}"
    if isinstance(error, Damaged):
        return f"{error.args[0].partition(';')[0]}; replay without checkpoints, with --from-start"
    if isinstance(error, EOFError):
        return "the script reads from the terminal, which a replay has not; give it what it asks for in another way"
    if isinstance(error, PermissionError) and error.errno:
        return f"{error}: a replay writes to its own folder only, not into the project nor right beside it"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error}; put it back as it was when the run began, and name it in relive.data(…) from now on"
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; install it to replay this version"
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    leave(main(sys.argv[1]))
