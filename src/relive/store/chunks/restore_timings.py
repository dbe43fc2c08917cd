"""How fast checkpoints are restored in this home, a moving average of measurements. Derived: may be deleted."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from relive.store.durable_files import atomic_write

FILE_NAME = "restores"
_WEIGHT = 0.3  # of the newest restore in the moving average
_MIN_BYTES = 1 << 20  # the time of smaller restores is mostly overhead
_MIN_INTERVAL_S = 5.0  # a replay restores hundreds of times, and writing the file takes longer than a small restore
_last_recorded: dict[Path, float] = {}  # when this process last wrote the file


def record_restore(packs: Path, size_bytes: int, took_s: float) -> None:
    """Records how long a restore took; does nothing in a read-only home."""
    elapsed_s = time.monotonic() - _last_recorded.get(packs, -_MIN_INTERVAL_S)
    if size_bytes < _MIN_BYTES or took_s <= 0 or elapsed_s < _MIN_INTERVAL_S:
        return
    _last_recorded[packs] = time.monotonic()
    before, latest = restore_speed(packs), size_bytes / took_s
    speed = latest if before is None else before + _WEIGHT * (latest - before)
    with contextlib.suppress(OSError):
        atomic_write(packs / FILE_NAME, b"%.0f\n" % speed, durable=False)


def restore_speed(packs: Path) -> float | None:
    """Returns bytes per second; None when nothing was restored here yet."""
    try:
        speed = float((packs / FILE_NAME).read_text())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None
