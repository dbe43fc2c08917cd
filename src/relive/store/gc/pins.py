"""Which runs were pinned: a file in a run's folder keeps all of its checkpoints, and keeps them in the home."""

from __future__ import annotations

from pathlib import Path

PIN = "pinned"


def is_pinned(folder: Path) -> bool:
    return (folder / PIN).exists()


def pin(folder: Path) -> bool:
    """Keep all checkpoints of the run in this folder; False when they were kept already."""
    was_pinned = is_pinned(folder)
    (folder / PIN).touch()
    return not was_pinned


def unpin(folder: Path) -> bool:
    """Let `relive gc` have them again; False when nothing held it back."""
    was_pinned = is_pinned(folder)
    (folder / PIN).unlink(missing_ok=True)
    return was_pinned
