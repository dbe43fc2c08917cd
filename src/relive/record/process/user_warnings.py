"""How relive tells of its own failures: once per kind, on stderr, with the remedy, never as an exception."""

from __future__ import annotations

import contextlib
import sys
import warnings

from relive.errors import ReliveWarning
from relive.installation import PACKAGE_FOLDER

_told: set[str] = set()


def warn_once(slug: str, message: str, *, about: str = "") -> None:
    """Warn once per process, and per thing that it is about. `slug` is a heading in docs/reference/messages.md."""
    if slug + about in _told:
        return
    _told.add(slug + about)
    text = f"[{slug}] {message}"
    try:
        warnings.warn(ReliveWarning(text), stacklevel=_levels_to_the_user())
    except Exception:  # noqa: BLE001 - warnings may be errors here, or shown by the user's code; training must go on
        say(text)


def _levels_to_the_user() -> int:
    """So that the warning shows the user's line, and not ours."""
    levels, frame = 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        levels, frame = levels + 1, frame.f_back
    return levels


def say(text: str) -> None:
    """A line on stderr, if there is one."""
    with contextlib.suppress(Exception):  # closed, replaced by anything, or gone because Python is ending
        if sys.stderr is not None:  # `print` would turn to stdout, which is the user's
            print(f"relive: {text}", file=sys.stderr)


def forget() -> None:
    """Warn of everything again (for tests)."""
    _told.clear()
