"""The processes that stay after a replay with their libraries loaded: which there are, what they hold, how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_MODULE = b"relive.hindsight.workers.forkserver"
_PROCESSES = Path("/proc")
_END_S = 3.0
_POLL_S = 0.02


class WarmProcess(NamedTuple):
    """A process that waits for the next replay, or works for one: then it has workers."""

    pid: int
    memory_bytes: int  # its own, without what it shares with others
    workers: int


def find_warm_processes() -> list[WarmProcess]:
    """Returns the warm processes of this user; on a system without /proc there are none."""
    pids = [int(path.name) for path in _PROCESSES.glob("[0-9]*") if _is_warm(path)]
    parents = {pid: _parent(pid) for pid in pids}
    roots = [pid for pid in sorted(pids) if parents[pid] not in parents]  # a worker has the command line of its parent
    return [WarmProcess(pid, _memory_bytes(pid), sum(parent == pid for parent in parents.values())) for pid in roots]


def describe_new(before: Collection[int], warm_s: float) -> str:
    """Says which processes stay that were not there before; empty if there are none."""
    new = [process for process in find_warm_processes() if process.pid not in before]
    if not new:
        return ""
    pids = ", ".join(str(process.pid) for process in new)
    size = sum(process.memory_bytes for process in new) / 1e6
    return (
        f"libraries stay loaded for {warm_s / 60:.3g} min, so that the next replay starts at once"
        f" (process {pids}, {size:.0f} MB); `relive stop` ends that"
    )


def end_warm_processes() -> tuple[list[WarmProcess], list[WarmProcess]]:
    """Ends the warm processes that no replay uses; returns those that ended, and those that have workers."""
    found = find_warm_processes()
    idle = [process for process in found if not process.workers]
    for process in idle:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _END_S
    while any(_is_warm(_PROCESSES / str(one.pid)) for one in idle) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    ended = [process for process in idle if not _is_warm(_PROCESSES / str(process.pid))]
    return ended, [process for process in found if process.workers]


def _is_warm(process: Path) -> bool:
    try:
        is_own = process.stat().st_uid == os.getuid()
        return is_own and _MODULE in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to somebody else
        return False


def _parent(pid: int) -> int:
    try:
        fields = (_PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(fields[1])
    except (OSError, ValueError, IndexError):
        return 0


def _memory_bytes(pid: int) -> int:
    """The memory of a process that no file backs: what would be free without it."""
    try:
        lines = (_PROCESSES / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
