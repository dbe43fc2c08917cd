"""What `relive.skipblock` returns while recording: marks code whose end state is stored, so replays can skip it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Protocol


class BlockDriver(Protocol):
    """A driver that records where a block begins and ends."""

    def begin_block(self, name: str, frame: FrameType) -> Any: ...
    def end_block(self, name: str, start: Any, objects: dict[str, Any], frame: FrameType) -> None: ...


class RecordedBlock:
    """`if block.step_into(): …` runs the code, `block.end(net, opt)` stores the state that it left in these objects."""

    def __init__(self, driver: BlockDriver, name: str) -> None:
        self._driver = driver
        self._name = name
        self._start: Any = None

    def step_into(self) -> bool:
        """Whether to run the code. While recording, always."""
        self._start = self._driver.begin_block(self._name, sys._getframe(1))
        return True

    def end(self, *objects: Any, **named: Any) -> None:
        """Ends the block and stores the state of the objects that it changed."""
        everything = {str(place): thing for place, thing in enumerate(objects)} | named
        self._driver.end_block(self._name, self._start, everything, sys._getframe(1))


class PlainBlock:
    """A block while nothing is recorded: its code runs and no state is stored."""

    def step_into(self) -> bool:
        return True

    def end(self, *objects: Any, **named: Any) -> None:
        """Does nothing."""
