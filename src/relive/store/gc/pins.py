"""Which runs are pinned: a marker file in a run's folder keeps all of its checkpoints, and keeps them in the home."""

from __future__ import annotations

from pathlib import Path

MARKER = "pinned"


def is_pinned(folder: Path) -> bool:
    """Whether the run in this folder is pinned."""
    return (folder / MARKER).exists()


def pin(folder: Path) -> bool:
    """Pins the run in this folder; returns False when it was pinned already."""
    was_pinned = is_pinned(folder)
    (folder / MARKER).touch()
    return not was_pinned


def unpin(folder: Path) -> bool:
    """Lets `relive gc` drop the checkpoints of the run again; returns False when it was not pinned."""
    was_pinned = is_pinned(folder)
    (folder / MARKER).unlink(missing_ok=True)
    return was_pinned
