"""Runs shipped from another machine: the file that marks them, and the time of their last heartbeat."""

from __future__ import annotations

import os
import time
from pathlib import Path

MARK_FILE = "shipped"
SILENCE_S = 120  # without a heartbeat for this long a process counts as dead; it sends one every ten seconds


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
