"""Whether a checkpoint is worth its cost now: the joint invariant, and a ledger of what the training really lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

DEFAULT_OVERHEAD = 1 / 15
_ENOUGH = 3  # undisturbed iterations that say what is usual
_LATELY = 15
_SCATTERS = 3
GUESSED_BYTES_PER_S = 0.5e9  # before the first checkpoint nothing has been measured yet


@dataclass(slots=True)
class Block:
    """A place where checkpoints can be taken: the end of a certain loop, or of an iteration of the main loop."""

    compute_s: float = 0.0  # C, all executions together
    executions: int = 0  # n
    checkpoints: int = 0  # k

    @property
    def mean_s(self) -> float:
        return self.compute_s / self.executions if self.executions else 0.0


@dataclass(slots=True)
class Ledger:
    """What checkpoints have cost, against the time the training has had."""

    overhead: float = DEFAULT_OVERHEAD  # ε
    restore_bytes_per_s: float | None = None  # as restores were seen to take in this home
    spent_s: float = 0.0
    measured_s: list[float] = field(default_factory=list)  # M of each checkpoint
    blocks: dict[str, Block] = field(default_factory=dict)

    def cost_s(self, size_bytes: int) -> float:
        """M: what the last few took, but for odd ones, or a guess from the size.

        The first one finds nothing ready and takes longer than any other. It counts in what was spent, but does not say
        what the next will take.
        """
        if len(self.measured_s) < 2:
            return min([size_bytes / GUESSED_BYTES_PER_S, *self.measured_s])
        return median(self.measured_s[-5:])

    def restore_ratio(self, size_bytes: int) -> float:
        """c: how long a restore takes against M; as long, while none was seen."""
        if self.restore_bytes_per_s is None:
            return 1.0
        return size_bytes / self.restore_bytes_per_s / max(self.cost_s(size_bytes), 1e-9)

    def executed(self, name: str, took_s: float) -> Block:
        block = self.blocks.setdefault(name, Block())
        block.executions += 1
        block.compute_s += took_s
        return block

    def charge(self, cost_s: float) -> None:
        """Enter what a checkpoint turned out to cost."""
        self.measured_s.append(cost_s)
        self.spent_s += cost_s

    def charge_more(self, cost_s: float) -> None:
        """The last checkpoint turned out to cost more than was known when it was written."""
        if self.measured_s:
            self.measured_s[-1] += cost_s
        self.spent_s += cost_s

    def is_worth_it(self, block: Block, *, size_bytes: int, elapsed_s: float, owed_s: float = 0.0) -> bool:
        """M/C < n/(k+1) · min(1/(1+c), ε) for the block, and ε kept over the whole run so far.

        `owed_s` is what was begun and not charged yet.
        """
        cost_s = self.cost_s(size_bytes)
        if block.mean_s <= 0 or not self.is_affordable(cost_s + owed_s, elapsed_s):
            return False
        share = min(1 / (1 + self.restore_ratio(size_bytes)), self.overhead)
        return cost_s / block.mean_s < block.executions / (block.checkpoints + 1) * share

    def is_affordable(self, cost_s: float, elapsed_s: float) -> bool:
        """Has the training earned this checkpoint by the time it has run?"""
        return self.spent_s + cost_s <= self.overhead * max(0.0, elapsed_s - self.spent_s)


@dataclass(slots=True)
class SlowDown:
    """How much longer iterations take while a checkpoint is written, against those without one lately."""

    quiet_s: deque[float] = field(default_factory=lambda: deque(maxlen=15))
    lost_s: float = 0.0  # in the iterations since the checkpoint began
    disturbed: int = 0  # iterations since the last without one

    @property
    def is_known(self) -> bool:
        """Were there enough iterations without a checkpoint, lately, to compare with?"""
        return len(self.quiet_s) >= _ENOUGH and self.disturbed <= _LATELY

    def observe(self, took_s: float, *, is_writing: bool) -> None:
        """Enter an iteration. What is within the ordinary scatter of iterations is no slow-down."""
        self.disturbed = self.disturbed + 1 if is_writing else 0
        if not is_writing:
            self.quiet_s.append(took_s)
        elif self.is_known:
            usual = median(self.quiet_s)
            scatter = median(abs(other - usual) for other in self.quiet_s)
            self.lost_s += max(0.0, took_s - usual - _SCATTERS * scatter)

    def settle(self, charged_s: float, wrote_s: float) -> float:
        """The checkpoint is written: what it took beyond the charge of its writer's CPU. Begins anew.

        An iteration that took longer by more than the writer was at work has met something else.
        """
        more, self.lost_s = max(0.0, min(self.lost_s, wrote_s) - charged_s), 0.0
        return more
