"""Brings a running script to the state of a checkpoint: objects, variables of its frames, random generators."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

from relive.checkpoint.analysis import bound_in_function, rebound_in
from relive.checkpoint.io.checkpoint_reader import Checkpoint
from relive.checkpoint.state import Lost, Outer, frames_between, near, set_variables, users_frame


def put_back(
    checkpoint: Checkpoint, frame: FrameType | None, objects: Mapping[str, Any], *, outer: Outer | None, line: int = 0,
    is_warm: bool = False,
) -> list[str]:  # fmt: skip
    """Bring a running script to the state of a checkpoint: objects, what is near, variables, and random generators.

    `frame` is where the skipped loop stands, and `outer` the loop around it. `is_warm`: the iteration around it did not
    run as it did then, so that its variables are put back, too. Gives the names of what is not there to be put back.
    """
    user = users_frame(frame)
    if user is not None and checkpoint.may_refer():
        checkpoint.meet(near(user, line or user.f_lineno, objects, outer, with_empty=True))
    checkpoint.restore(objects, random=False)
    missing = [name for name in checkpoint.given() if name not in objects]
    if user is not None:
        at = line or user.f_lineno
        missing += checkpoint.restore_near(near(user, at, objects, outer, with_empty=True))
        for level, around in enumerate(frames_between(user, outer if is_warm else None)):
            bound = rebound_in(around, outer[2]) if outer and id(around) == outer[0] else bound_in_function(around)
            set_variables(around, checkpoint.around(level), rebound=bound, settling=checkpoint)
        set_variables(user, checkpoint.variables(), rebound=rebound_in(user, at), settling=checkpoint)
        lost = {name: Lost(name) for name in checkpoint.unkept()}
        set_variables(user, lost, rebound=lost)
    checkpoint.restore_gradients()
    checkpoint.restore_random()
    return missing
