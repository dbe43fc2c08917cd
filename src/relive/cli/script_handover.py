"""The exception by which `relive run` leaves click before the script starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relive.handsfree import ScriptStart


class ScriptHandover(BaseException):
    """Unwinds click, which would otherwise appear in the script's tracebacks and handle its exceptions."""

    def __init__(self, start: ScriptStart) -> None:
        super().__init__(start.target)
        self.start = start
