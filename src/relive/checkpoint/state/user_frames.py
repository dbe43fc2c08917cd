"""Finds frames of the user's own code on the stack, skipping frames of libraries and of relive."""

from __future__ import annotations

import sys
from inspect import CO_GENERATOR
from types import CodeType, FrameType

from relive.checkpoint.analysis import is_library_file

MAX_FRAMES = 20
OuterLoop = tuple[int, int, int]  # the enclosing loop: identities of its frame and code, and its line


def find_user_frame(frame: FrameType | None) -> FrameType | None:
    """Returns the innermost frame of the user's own code, skipping progress bars and wrappers of libraries."""
    while frame is not None and is_library_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def find_loop_frame(frame: FrameType | None, created_in: CodeType | None) -> FrameType | None:
    """Returns the user's frame whose loop iterates over an iterable that was created in `created_in`.

    A generator of the user's in between, as in `for x in progress(relive.loop(…))`, only passes the items on.
    """
    user = find_user_frame(frame)
    while user is not None and user.f_code is not created_in and user.f_code.co_flags & CO_GENERATOR:
        outer = find_user_frame(user.f_back)
        if outer is None:
            return user
        user = outer
    return user


def collect_user_frames(frame: FrameType | None) -> list[FrameType]:
    """Returns the user's frames from this one outwards, up to the top level of the script.

    What is around that has started the script, such as a command in `bin/`, and is another one in a replay.
    """
    found: list[FrameType] = []
    main = sys.modules.get("__main__")
    while frame is not None and len(found) < MAX_FRAMES:
        if not is_library_file(frame.f_code.co_filename):
            found.append(frame)
            if frame.f_code.co_name == "<module>" and main is not None and frame.f_globals is vars(main):
                break
        frame = frame.f_back
    return found


def frames_between(inner: FrameType, outer: OuterLoop | None) -> list[FrameType]:
    """Returns the user's frames from a nested loop up to the outer loop; none if that isn't found."""
    found: list[FrameType] = []
    frame: FrameType | None = inner
    while frame is not None and outer is not None and len(found) < MAX_FRAMES:
        if not is_library_file(frame.f_code.co_filename):
            found.append(frame)
        if (id(frame), id(frame.f_code)) == outer[:2]:
            return found
        frame = frame.f_back
    return []
