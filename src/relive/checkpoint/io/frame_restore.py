"""Restores a checkpoint into a running script, and compares it with what was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

from relive.checkpoint.graph import Difference, Observer, Roots, variables_left_out
from relive.checkpoint.io.checkpoint_reader import Checkpoint
from relive.checkpoint.io.trainer_state import unwrapped
from relive.checkpoint.state import collect_user_frames, find_user_frame


def running_roots(frame: FrameType | None, objects: Mapping[str, Any], line: int = 0) -> Roots:
    """Returns the roots of a running script: `frame` contains the loop whose header is at `line`."""
    user = find_user_frame(frame)
    frames = collect_user_frames(user)[::-1]
    left_out = {id(user): variables_left_out(user, line or user.f_lineno)} if user is not None else {}
    return Roots(unwrapped(objects), frames, left_out)


def restore_script(
    checkpoint: Checkpoint, observer: Observer, frame: FrameType | None, objects: Mapping[str, Any], *, line: int = 0
) -> tuple[int, list[Difference]]:
    """Restores everything; returns how many objects are as recorded, and the differences."""
    return checkpoint.restore_running(observer, running_roots(frame, objects, line))
