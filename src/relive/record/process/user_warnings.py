"""How relive reports its own failures: once per kind, on stderr, with the remedy, never as an exception."""

from __future__ import annotations

import contextlib
import sys
import warnings
from types import FrameType

from relive.errors import ReliveWarning
from relive.installation import PACKAGE_FOLDER

_warned: set[str] = set()


def warn_once(slug: str, message: str, *, about: str = "") -> None:
    """Warns once per process, slug and `about`. `slug` is a heading in docs/reference/messages.md."""
    if slug + about in _warned:
        return
    _warned.add(slug + about)
    text = f"[{slug}] {message}"
    try:
        warnings.warn(ReliveWarning(text), stacklevel=_user_stacklevel())
    except Exception:  # noqa: BLE001 - warnings may be errors, or handled by user code; training must go on
        print_to_stderr(text)


def _user_stacklevel() -> int:
    """Returns the stacklevel of the innermost frame of the user, so that the warning shows the user's line."""
    levels, frame = 2, sys._getframe(2)
    while frame.f_back is not None and not _is_of_user(frame):
        levels, frame = levels + 1, frame.f_back
    return levels


def user_frame() -> FrameType:
    """Returns the innermost frame outside of relive."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _is_of_user(frame):
        frame = frame.f_back
    return frame


def _is_of_user(frame: FrameType) -> bool:
    """Whether a frame is neither of relive nor of contextlib, whose decorators stand between relive and its callers."""
    file = frame.f_code.co_filename
    return not file.startswith(PACKAGE_FOLDER) and file != contextlib.__file__


def print_to_stderr(text: str) -> None:
    """Prints a line to stderr, if there is one."""
    with contextlib.suppress(Exception):  # stderr may be closed, replaced, or gone because Python is exiting
        if sys.stderr is not None:  # `print(file=None)` would write to the user's stdout
            print(f"relive: {text}", file=sys.stderr)


def reset_warnings() -> None:
    """Forgets which warnings were issued (for tests)."""
    _warned.clear()
