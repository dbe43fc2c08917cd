"""Whether the process that wrote a journal is still alive, even if its pid was reused."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


def process_start_stamp(pid: int) -> str | None:
    """Returns a stamp of the boot and of the start time of a process; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _start_from_ps(pid)
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command name before it may contain spaces and brackets
    state, started = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{started}"


def process_age_s(pid: int) -> float | None:
    """Returns how long ago a process started; None where that is unknown."""
    start = process_start_stamp(pid)
    if start is None or not hasattr(time, "CLOCK_BOOTTIME") or ":" not in start:
        return None
    ticks = int(start.rpartition(":")[2])
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def is_process_alive(pid: int | None, start: str | None) -> bool:
    """Whether the process with this pid exists and has this start stamp (from `process_start_stamp`)."""
    if pid is None:
        return False
    now = process_start_stamp(pid)
    return now is not None and (start is None or now == start)


def _start_from_ps(pid: int) -> str | None:
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
