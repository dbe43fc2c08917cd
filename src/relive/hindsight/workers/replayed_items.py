"""The items of a replayed loop: how to reach the wanted ones, and what iterations leave behind in libraries."""

from __future__ import annotations

import dis
import gc
import itertools
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

from relive.errors import ReliveError
from relive.hindsight.plan import Visit


class Diverged(ReliveError):
    """The script took another way than it did when it was recorded."""


def has_buckets() -> bool:
    """Does the script train with DistributedDataParallel?

    It puts gradients into other buckets after its first backward pass, and sums of three and more depend on where in
    its bucket a number lies. So a resumed training must have had one, or its first step would differ in the last bits.
    """
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    return parallel is not None and any(
        issubclass(type(thing), parallel.DistributedDataParallel) for thing in gc.get_objects()
    )


def is_dropping(frame: FrameType | None) -> bool:
    """Does a frame let go of its iterator by `break` or `return`, rather than being unwound by an error?"""
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("POP_TOP", "POP_ITER")


def follows(visit: Visit, before: Visit | None) -> bool:
    """Is the iteration right before this one visited, and counts?"""
    if before is None:
        return visit.iteration == 0
    return before.counts and before.iteration == visit.iteration - 1


class Items:
    """The items of a loop, of which only some are wanted."""

    def __init__(self, items: Iterable[Any]) -> None:
        # A range or a list needs not be gone through; anything else may draw random numbers, or open files.
        self._sequence = items if type(items) in (range, list, tuple) else None
        self._iterator = iter(items)
        self._next = 0
        self._ahead: list[Any] | None = None  # the next item, if it was asked for already; empty: there is none

    def go_to(self, number: int) -> None:
        if self._sequence is not None:
            self._next = number
            return
        while self._next < number:
            self.take()

    def look_ahead(self) -> None:
        """Ask for the next item while the iteration before it is still the current one, as a loop does.

        What makes the items may log, and that belongs to this iteration, wanted as the next one may be or not.
        """
        if self._sequence is None and self._ahead is None:
            self._ahead = list(itertools.islice(self._iterator, 1))

    def take(self) -> Any:
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is not None:
                item = ahead[0]
            else:
                item = self._sequence[self._next] if self._sequence is not None else next(self._iterator)  # type: ignore[index]
        except (StopIteration, IndexError):
            raise Diverged(
                f"the loop had more than {self._next} iterations when it was recorded; check that its data is the same"
            ) from None
        self._next += 1
        return item
