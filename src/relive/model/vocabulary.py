"""The outcomes of a run, and the names that tables give to things."""

from __future__ import annotations

from typing import Any

RUNNING = "running"
FINISHED = "finished"
FAILED = "failed"
KILLED = "killed"

MAX_NAME_CHARS = 1_000
SHORT_ID = 8  # as many digits of a run's id as tables show


def clean_name(name: Any) -> str:
    """A name that can be stored and shown, from whatever a user gave."""
    text = name if type(name) is str else str(name)
    if not text:
        return "(empty)"
    if len(text) > MAX_NAME_CHARS:
        text = text[: MAX_NAME_CHARS - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
