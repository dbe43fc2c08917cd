"""How quickly checkpoints come back in this home, as restores were seen to take; derived, and may be deleted."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

NAME = "restores"
_WEIGHT = 0.3  # of the newest restore in what is expected of the next
_LEAST_BYTES = 1 << 20  # smaller ones tell of anything but the speed
PAUSE_S = 5.0  # a replay restores hundreds of times, and noting takes longer than a small restore does
_noted: dict[Path, float] = {}  # when this process last did


def note_restore(packs: Path, size_bytes: int, took_s: float) -> None:
    """Remember how long a restore took. A home that one may only read stays as it is."""
    if size_bytes < _LEAST_BYTES or took_s <= 0 or time.monotonic() - _noted.get(packs, -PAUSE_S) < PAUSE_S:
        return
    _noted[packs] = time.monotonic()
    before, latest = restore_speed(packs), size_bytes / took_s
    speed = latest if before is None else before + _WEIGHT * (latest - before)
    partial = packs / f".{NAME}.{os.getpid()}"
    with contextlib.suppress(OSError):
        partial.write_text(f"{speed:.0f}\n")
        partial.rename(packs / NAME)


def restore_speed(packs: Path) -> float | None:
    """Bytes a second; None when nothing was restored here yet."""
    try:
        speed = float((packs / NAME).read_text())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None
