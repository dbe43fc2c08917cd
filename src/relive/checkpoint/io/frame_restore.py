"""Restores a checkpoint into a running script: objects, variables of its frames, random generators."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

from relive.checkpoint.analysis import bound_in_function, rebound_in_loop
from relive.checkpoint.io.checkpoint_reader import Checkpoint
from relive.checkpoint.state import (
    OuterLoop,
    UncapturedValue,
    discover_around_loop,
    find_user_frame,
    frames_between,
    restore_variables,
)


def restore_script(
    checkpoint: Checkpoint, frame: FrameType | None, objects: Mapping[str, Any], *, outer: OuterLoop | None,
    line: int = 0, is_warm: bool = False,
) -> list[str]:  # fmt: skip
    """Restores named and discovered objects, variables, gradients and random generators of a running script.

    `frame` contains the skipped loop, and `outer` is the loop that encloses it. `is_warm`: the enclosing iteration did
    not run as it was recorded, so its variables are restored, too. Returns the names that do not exist now.
    """
    user = find_user_frame(frame)
    if user is not None and checkpoint.may_refer_to_discovered():
        checkpoint.register(discover_around_loop(user, line or user.f_lineno, objects, outer, with_empty=True))
    checkpoint.restore(objects, random=False)
    missing = [name for name in checkpoint.named() if name not in objects]
    if user is not None:
        at = line or user.f_lineno
        missing += checkpoint.restore_discovered(discover_around_loop(user, at, objects, outer, with_empty=True))
        for level, outer_frame in enumerate(frames_between(user, outer if is_warm else None)):
            has_loop = outer is not None and id(outer_frame) == outer[0]
            bound = rebound_in_loop(outer_frame, outer[2]) if outer and has_loop else bound_in_function(outer_frame)
            restore_variables(outer_frame, checkpoint.outer_variables(level), rebound=bound, live=checkpoint)
        restore_variables(user, checkpoint.variables(), rebound=rebound_in_loop(user, at), live=checkpoint)
        uncaptured = {name: UncapturedValue(name) for name in checkpoint.uncaptured()}
        restore_variables(user, uncaptured, rebound=uncaptured)
    checkpoint.restore_gradients()
    checkpoint.restore_random()
    return missing
