"""A process that has loaded the libraries that scripts load first; each worker is forked from it.

Loading them takes seconds, every time; forking takes milliseconds. Nothing of the script runs here: a worker begins as
a new process would, but for the libraries that are there already.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
import time
from typing import Any

import msgspec

from relive.hindsight import worker

POLL_S = 0.01


class Start(msgspec.Struct, frozen=True):
    """What a worker is started with: one line on our stdin."""

    job: str
    cwd: str
    env: dict[str, str]
    out: str
    err: str


class Told(msgspec.Struct, frozen=True):
    """One line on our stdout: we are ready (after so long), a worker has begun, or has ended with a code."""

    pid: int = 0
    job: str = ""
    code: int | None = None
    ready_s: float | None = None


def main(modules: list[str]) -> int:
    """Load modules, then fork a worker for each line, until there are no more lines."""
    # What libraries print while they load must not get between our lines.
    told = os.dup(1)
    os.dup2(2, 1)
    begun = time.perf_counter()
    for name in modules:
        with contextlib.suppress(Exception):  # the script will meet the same error, and tell of it
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a collection in a worker does not touch, and so copy, all pages
    _tell(told, Told(ready_s=time.perf_counter() - begun))
    return _serve(told)


def _serve(told: int) -> int:
    children: set[int] = set()
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], POLL_S if children else None)
        if readable:
            data = os.read(0, 1 << 16)
            if not data:
                return _end(children)
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                start = msgspec.json.decode(line, type=Start)
                pid = os.fork()
                if pid == 0:
                    os.close(told)
                    return _become_worker(start)
                children.add(pid)
                _tell(told, Told(pid, start.job))
        for pid in list(children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                children.discard(pid)
                _tell(told, Told(pid, code=os.waitstatus_to_exitcode(status)))


def _become_worker(start: Start) -> int:
    os.setsid()  # Ctrl-C at the terminal is for the one who asked
    for path, flags, fd in (
        (os.devnull, os.O_RDONLY, 0),
        (start.out, os.O_WRONLY | os.O_CREAT, 1),
        (start.err, os.O_WRONLY | os.O_CREAT, 2),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.clear()
    os.environ.update(start.env)
    os.chdir(start.cwd)
    return worker.main(start.job)


def _end(children: set[int]) -> int:
    """Nobody asks any more, or who asked is gone: what workers do now is for nobody."""
    for pid in children:
        for kill in (os.killpg, os.kill):  # it may not lead its group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
    return 0


def _tell(fd: int, what: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, msgspec.json.encode(what) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
