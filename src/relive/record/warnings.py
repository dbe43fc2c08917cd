"""How relive tells of its own failures: once per kind, on stderr, with the remedy, never as an exception."""

from __future__ import annotations

import contextlib
import sys
import warnings

from relive.errors import ReliveWarning

_told: set[str] = set()


def warn_once(slug: str, message: str) -> None:
    """Warn once per process. `slug` is a heading in docs/reference/messages.md."""
    if slug in _told:
        return
    _told.add(slug)
    text = f"[{slug}] {message}"
    try:
        warnings.warn(ReliveWarning(text), stacklevel=3)
    except ReliveWarning:
        # The user turned warnings into errors; ours must not end their training.
        with contextlib.suppress(OSError, ValueError):
            print(f"relive: {text}", file=sys.stderr)


def forget() -> None:
    """Warn of everything again (for tests)."""
    _told.clear()
