"""The stacks of all threads of a worker and its children, written by themselves when they get a signal."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
from pathlib import Path

from relive.hindsight.workers.supervision.process_group import group_members

_FILE = "stacks"
_AFTER_RTMIN = 11  # a signal that hardly any program uses
_WAIT_S = 2.0  # for a process to write its stacks; it takes milliseconds
_POLL_S = 0.02
_MAX_BYTES = 20_000


def dump_on_signal(folder: Path) -> None:
    """In a worker: lets this process and those it forks write their stacks when `collect_stacks` asks for them."""
    number = _signal_number()
    if number is not None:
        # Written from a signal handler, without Python: also while a thread holds the interpreter's lock.
        file = os.open(folder / _FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        faulthandler.register(number, file, all_threads=True)


def collect_stacks(leader: int, folder: Path) -> str:
    """Returns the stacks of all processes of a worker. Those without the handler end by the signal."""
    number = _signal_number()
    path = folder / _FILE
    if number is None or not path.exists():  # it has not come to the script yet
        return ""
    for pid in group_members(leader):
        _append(path, f"process {pid}{'' if pid == leader else ', started by it'}\n")
        before = path.stat().st_size
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            _wait_for_growth(path, before)
    return path.read_text(errors="replace")[:_MAX_BYTES]


def _wait_for_growth(path: Path, before: int) -> None:
    """Waits until the file has grown, and then until it grows no more."""
    deadline = time.monotonic() + _WAIT_S
    size, last = path.stat().st_size, before
    while time.monotonic() < deadline and (size == before or size != last):
        time.sleep(_POLL_S)
        last, size = size, path.stat().st_size


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _signal_number() -> int | None:
    return signal.SIGRTMIN + _AFTER_RTMIN if sys.platform == "linux" else None
