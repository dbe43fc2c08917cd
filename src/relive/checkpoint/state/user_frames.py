"""Frames of the user's own code among those on the stack; frames of libraries and of relive are passed over."""

from __future__ import annotations

from inspect import CO_GENERATOR
from types import CodeType, FrameType

from relive.checkpoint.analysis import is_foreign

MAX_FRAMES = 20


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame of the user's own code: progress bars and wrappers of libraries are passed over."""
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def loops_frame(frame: FrameType | None, made_in: CodeType | None) -> FrameType | None:
    """The user's frame whose loop goes through what was made in some code.

    A generator of the user's own between the two, `for x in progress(relive.loop(…))`, only hands the items on.
    """
    user = users_frame(frame)
    while user is not None and user.f_code is not made_in and user.f_code.co_flags & CO_GENERATOR:
        around = users_frame(user.f_back)
        if around is None:
            return user
        user = around
    return user


def frames_of(frame: FrameType | None) -> list[FrameType]:
    """The user's frames from this one up."""
    found: list[FrameType] = []
    while frame is not None and len(found) < MAX_FRAMES:
        if not is_foreign(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found
