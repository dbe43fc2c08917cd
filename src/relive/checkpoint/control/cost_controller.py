"""Whether a checkpoint is worth its cost now: the joint invariant, and a ledger of the time it really cost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from relive.settings import Settings

_MIN_QUIET = 3  # undisturbed iterations that are needed to know the usual time
_MAX_DISTURBED = 15  # iterations after which the usual time is out of date
_SCATTER_FACTOR = 3  # deviations from the usual time up to this many times the median one are noise
GUESSED_BYTES_PER_S = 0.5e9  # until checkpoints have been measured


@dataclass(slots=True)
class Block:
    """A place in the code where checkpoints can be taken: the end of a nested loop, or of a main-loop iteration."""

    compute_s: float = 0.0  # C, all executions together
    executions: int = 0  # n
    checkpoints: int = 0  # k

    @property
    def mean_s(self) -> float:
        return self.compute_s / self.executions if self.executions else 0.0


@dataclass(slots=True)
class Ledger:
    """The time that checkpoints have cost, and the time that the training has run."""

    overhead: float = Settings().overhead  # ε
    restore_bytes_per_s: float | None = None  # measured in this home; None before the first restore
    spent_s: float = 0.0
    measured_s: list[float] = field(default_factory=list)  # M of each checkpoint
    blocks: dict[str, Block] = field(default_factory=dict)

    def cost_s(self, size_bytes: int) -> float:
        """Returns M, the expected cost: the median of the last few, or an estimate from the size.

        The first checkpoint is slower than all others, because memory and caches are cold. It counts as spent time,
        but not in the estimate.
        """
        if len(self.measured_s) < 2:
            return min([size_bytes / GUESSED_BYTES_PER_S, *self.measured_s])
        return median(self.measured_s[-5:])

    def restore_ratio(self, size_bytes: int) -> float:
        """Returns c, the time of a restore divided by M; 1 while no restore has been measured."""
        if self.restore_bytes_per_s is None:
            return 1.0
        return size_bytes / self.restore_bytes_per_s / max(self.cost_s(size_bytes), 1e-9)

    def record_execution(self, name: str, took_s: float) -> Block:
        block = self.blocks.setdefault(name, Block())
        block.executions += 1
        block.compute_s += took_s
        return block

    def charge(self, cost_s: float) -> None:
        """Records the cost of a checkpoint."""
        self.measured_s.append(cost_s)
        self.spent_s += cost_s

    def charge_extra(self, cost_s: float) -> None:
        """Adds a cost of the last checkpoint that was not known when it was written."""
        if self.measured_s:
            self.measured_s[-1] += cost_s
        self.spent_s += cost_s

    def is_worth_it(self, block: Block, *, size_bytes: int, elapsed_s: float, owed_s: float = 0.0) -> bool:
        """Whether M/C < n/(k+1) · min(1/(1+c), ε) for the block, and the overhead of the whole run stays within ε.

        `owed_s` is the cost of a checkpoint that is being written and not charged yet.
        """
        cost_s = self.cost_s(size_bytes)
        if block.mean_s <= 0 or not self.is_affordable(cost_s + owed_s, elapsed_s):
            return False
        share = min(1 / (1 + self.restore_ratio(size_bytes)), self.overhead)
        return cost_s / block.mean_s < block.executions / (block.checkpoints + 1) * share

    def is_affordable(self, cost_s: float, elapsed_s: float) -> bool:
        """Whether the overhead of the run stays within ε with this checkpoint."""
        return self.spent_s + cost_s <= self.overhead * max(0.0, elapsed_s - self.spent_s)


@dataclass(slots=True)
class SlowDown:
    """How much longer iterations take while a checkpoint is written than recent iterations without one."""

    quiet_s: deque[float] = field(default_factory=lambda: deque(maxlen=15))
    lost_s: float = 0.0  # by the iterations since the checkpoint began
    disturbed: int = 0  # consecutive iterations with a checkpoint

    @property
    def is_known(self) -> bool:
        """Whether enough recent iterations had no checkpoint, so that there is a usual time to compare with."""
        return len(self.quiet_s) >= _MIN_QUIET and self.disturbed <= _MAX_DISTURBED

    def observe(self, took_s: float, *, is_writing: bool) -> None:
        """Records an iteration. Deviations within the ordinary scatter of iterations are no slow-down."""
        self.disturbed = self.disturbed + 1 if is_writing else 0
        if not is_writing:
            self.quiet_s.append(took_s)
        elif self.is_known:
            usual = median(self.quiet_s)
            scatter = median(abs(other - usual) for other in self.quiet_s)
            self.lost_s += max(0.0, took_s - usual - _SCATTER_FACTOR * scatter)

    def take_extra_cost(self, charged_s: float, wrote_s: float) -> float:
        """Returns the slow-down by a written checkpoint beyond the charged CPU time of its writer, and resets it.

        A slow-down longer than the time that the writer worked has another cause, so `wrote_s` bounds it.
        """
        extra_s, self.lost_s = max(0.0, min(self.lost_s, wrote_s) - charged_s), 0.0
        return extra_s
