"""Whether the process that wrote a journal still lives, even when its pid was given to another one since."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


def process_start(pid: int) -> str | None:
    """A stamp of when a process started on this boot of the machine; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _from_ps(pid)
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    state, started = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{started}"


def age_s(pid: int) -> float | None:
    """For how long a process has been there; None where that can't be told."""
    start = process_start(pid)
    if start is None or not hasattr(time, "CLOCK_BOOTTIME") or ":" not in start:
        return None
    ticks = int(start.rpartition(":")[2])
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def is_alive(pid: int | None, start: str | None) -> bool:
    """Is the process with this pid the one that had this start stamp?"""
    if pid is None:
        return False
    now = process_start(pid)
    return now is not None and (start is None or now == start)


def _from_ps(pid: int) -> str | None:
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None
