"""A worker: runs the script of a version as it was started then, with a replayer as its driver."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
import types
from pathlib import Path

from relive.hindsight.guarding import Guard
from relive.hindsight.job import Job
from relive.hindsight.replayer import Replayer
from relive.record import session


def main(path: str) -> int:
    """Do the job described in a file; the exit code says whether the script came through."""
    job = Job.read(Path(path))
    os.chdir(job.cwd)
    sys.argv = [job.script, *job.argv]
    sys.path[:0] = job.search
    replayer = Replayer(job)
    session.first = session.driver = replayer
    Guard(job.protected, job.writable).start()
    try:
        _run(job)
    except SystemExit as left:
        ok = left.code in (None, 0)
        replayer.finish(ok=ok, error="" if ok else f"the script ended with exit code {left.code}")
        return 0 if ok else 1
    except BaseException as error:  # noqa: BLE001 - whatever the script raised is told to the user, by the parent
        replayer.finish(ok=False, error=_told(error), traceback=traceback.format_exc())
        return 1
    replayer.finish()
    return 0


def _run(job: Job) -> None:
    if job.module:
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)
        return
    main_module = types.ModuleType("__main__")
    main_module.__file__ = job.script
    sys.modules["__main__"] = main_module
    code = compile(Path(job.script).read_bytes(), job.script, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)


def _told(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "the script reads from the terminal, which a replay has not; give it what it asks for in another way"
    if isinstance(error, ModuleNotFoundError):
        return f"{error}; install it to replay this version"
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
