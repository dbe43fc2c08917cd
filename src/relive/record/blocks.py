"""What `relive.skipblock` gives back while recording: code whose end state is kept, so that it can be skipped."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Protocol


class BlockKeeper(Protocol):
    """The driver that is told where a block begins and ends."""

    def begin_block(self, name: str, frame: FrameType) -> Any: ...
    def end_block(self, name: str, begun: Any, objects: dict[str, Any], frame: FrameType) -> None: ...


class RecordedBlock:
    """`if block.step_into(): …` runs the code, `block.end(net, opt)` keeps what it left behind in these objects."""

    def __init__(self, keeper: BlockKeeper, name: str) -> None:
        self._keeper = keeper
        self._name = name
        self._begun: Any = None

    def step_into(self) -> bool:
        """Is the code to be run? While recording, always."""
        self._begun = self._keeper.begin_block(self._name, sys._getframe(1))
        return True

    def end(self, *objects: Any, **named: Any) -> None:
        """The block is over; the state of these objects is what it changed."""
        everything = {str(place): thing for place, thing in enumerate(objects)} | named
        self._keeper.end_block(self._name, self._begun, everything, sys._getframe(1))


class PlainBlock:
    """A block when nothing is recorded: its code runs, and that is all."""

    def step_into(self) -> bool:
        return True

    def end(self, *objects: Any, **named: Any) -> None:
        """Nothing is kept."""
