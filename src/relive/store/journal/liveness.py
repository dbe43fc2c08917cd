"""Whether the process that wrote a journal is alive: by its pid, or by the last heartbeat from another machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

MARK_FILE = "shipped"
SILENCE_S = 120  # without a heartbeat for this long a process counts as dead; it sends one every ten seconds


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
    import subprocess  # only where there is no /proc

    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def last_contact(folder: Path) -> float | None:
    """The time of the last heartbeat of a shipped run, by this machine's clock; None for a run recorded here."""
    try:
        return (folder / MARK_FILE).stat().st_mtime
    except OSError:
        return None


def is_shipped(folder: Path) -> bool:
    """Whether a run was recorded on another machine. If so, its checkpoints are there and chunks may still arrive."""
    return last_contact(folder) is not None


def record_heartbeat(folder: Path) -> None:
    """Records a heartbeat. After a silence the index may list the run as killed, so it has to read the run again."""
    mark, before = folder / MARK_FILE, last_contact(folder)
    if before is None:
        mark.touch()
    else:
        os.utime(mark)
    if before is not None and before < time.time() - SILENCE_S:
        mark_for_reindexing(folder)


def mark_for_reindexing(folder: Path) -> None:
    """Makes the index read the run again, by changing the folder's mtime, which the index compares."""
    os.utime(folder)
