"""The outcomes of a run, the limits of names and short ids, and texts that can be stored."""

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


def escape_surrogates(form: Any) -> Any:
    """Returns the same JSON with lone surrogates, which UTF-8 can't encode, written as backslash escapes."""
    if isinstance(form, str):
        return form.encode("utf-8", "backslashreplace").decode()
    if isinstance(form, dict):
        return {escape_surrogates(key): escape_surrogates(value) for key, value in form.items()}
    return [escape_surrogates(item) for item in form] if isinstance(form, list | tuple) else form
