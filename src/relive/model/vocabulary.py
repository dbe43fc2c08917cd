"""The outcomes of a run, and the limits of names and short ids."""

from __future__ import annotations

from typing import Any

RUNNING = "running"
FINISHED = "finished"
FAILED = "failed"
INTERRUPTED = "interrupted"  # by Ctrl-C
PRUNED = "pruned"  # stopped early, because other runs of its sweep were better; also the tag that says so
KILLED = "killed"

MAX_NAME_CHARS = 1_000
SHORT_ID_DIGITS = 8  # digits of a run's id in tables


def clean_name(name: Any) -> str:
    """Converts what a user passes as a name into one that can be stored: non-empty, bounded, valid UTF-8."""
    text = name if type(name) is str else str(name)
    if not text:
        return "(empty)"
    if len(text) > MAX_NAME_CHARS:
        text = text[: MAX_NAME_CHARS - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
