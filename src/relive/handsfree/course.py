"""The loops of a training that a library runs, as its callbacks tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relive.handsfree.telling import teller
from relive.handsfree.verbs import Turns, turns


class Course:
    """Where a library is in its epochs and steps. Its loops can't be entered in the middle, so nothing is kept."""

    def __init__(self) -> None:
        self._epochs: Turns | None = None
        self._steps: Turns | None = None

    def begin_epoch(self) -> None:
        self.end_epoch()
        if self._epochs is None:
            self._epochs = turns("epoch")
        self._epochs.go(True)

    def begin_step(self) -> None:
        if self._steps is None:
            self._steps = turns("step")
        self._steps.go(True)

    def end_epoch(self) -> None:
        if self._steps is not None:
            self._steps.leave()
        self._steps = None

    def end(self) -> None:
        self.end_epoch()
        if self._epochs is not None:
            self._epochs.leave()
        self._epochs = None

    def log(self, values: Mapping[Any, Any]) -> None:
        """What the library logs by itself, in the loops it is in."""
        teller.hear_always(values)
