"""How `relive run` gets out of the command line before it starts the script."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relive.handsfree import ScriptStart


class Leave(BaseException):
    """Out of the command line's own machinery, which would change what the script's errors look like."""

    def __init__(self, start: ScriptStart) -> None:
        super().__init__(start.target)
        self.start = start
