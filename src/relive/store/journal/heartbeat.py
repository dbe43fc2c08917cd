"""Runs that came over the network: the mark that says so, and when their process was last heard of."""

from __future__ import annotations

import os
import time
from pathlib import Path

MARK = "shipped"
SILENCE_S = 120  # a process that was not heard of for this long is taken for dead; it gives a sign every ten seconds


def last_contact(folder: Path) -> float | None:
    """When the process of a shipped run last gave a sign, by this machine's clock; None for a run recorded here."""
    try:
        return (folder / MARK).stat().st_mtime
    except OSError:
        return None


def is_shipped(folder: Path) -> bool:
    """Was this run recorded elsewhere? Then its checkpoints are there, and chunks may still be on their way."""
    return last_contact(folder) is not None


def record_heartbeat(folder: Path) -> None:
    """The process gave a sign. After a silence the run may stand in the index as killed, so it is to be read again."""
    mark, before = folder / MARK, last_contact(folder)
    if before is None:
        mark.touch()
    else:
        os.utime(mark)
    if before is not None and before < time.time() - SILENCE_S:
        read_again(folder)


def read_again(folder: Path) -> None:
    """Let the index read the run anew: it compares the time of the folder."""
    os.utime(folder)
