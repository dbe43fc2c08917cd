"""How long a worker may go without progress, and whether it has gone without for longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relive.hindsight.workers.supervision.progress_file import NOWHERE, Progress

DEFAULT_PATIENCE_S = 60.0
_RECORDED_TIMES = 10  # a replay may be that much slower than the recorded run
_OUTSIDE_TIMES = 5  # outside of the main loops libraries are loaded and data is prepared
_BUSY_TIMES = 10  # a process that computes may be slow rather than stuck
_BUSY_SHARE = 0.1  # of one processor: those that wait for each other use less
_SLOWEST_BYTES_PER_S = 20e6  # of restoring a checkpoint
_PAUSE_S = 10.0  # between two looks: the parent itself was stopped


@dataclass(frozen=True, slots=True)
class Patience:
    """The recorded times of a run, from which the longest time without progress follows."""

    least_s: float = DEFAULT_PATIENCE_S  # 0: no limit
    outside_s: float = 0.0  # of all that is not in a main loop
    iterations_s: Mapping[int, float] = field(default_factory=dict)  # of the longest iteration of each main loop
    names: Mapping[int, str] = field(default_factory=dict)  # of the main loops
    restored_bytes: int = 0  # of the largest checkpoint

    def recorded_s(self, at: Progress) -> float:
        return self.iterations_s.get(at.loop, self.outside_s)

    def allowed_s(self, at: Progress) -> float:
        least_s = self.least_s * (_OUTSIDE_TIMES if at.loop == NOWHERE else 1)
        return max(least_s, _RECORDED_TIMES * self.recorded_s(at)) + self.restored_bytes / _SLOWEST_BYTES_PER_S

    def describe(self, at: Progress, quiet_s: float) -> str:
        """What to tell of a worker that was stopped."""
        where = (
            f"in {self.names.get(at.loop, 'a loop')} {at.iteration}"
            if at.loop != NOWHERE
            else "outside of the main loops"
        )
        return (
            f"no progress for {quiet_s:.0f} s {where}, where the recorded run took {self.recorded_s(at):.1f} s at most,"
            " so the worker was stopped; if it only needs more time, allow it with --patience SECONDS"
        )


class Watchdog:
    """Judges one task by what its workers report. Takes the time from outside, so that it can be tested."""

    def __init__(self, patience: Patience, processor_seconds: Callable[[], float | None]) -> None:
        self._patience = patience
        self._processor_seconds = processor_seconds
        self._counts: tuple[int, ...] = ()
        self._since: float | None = None  # of the last progress
        self._looked = 0.0
        self._sample: tuple[float, float | None] | None = None  # when, and the processor time used until then
        self.quiet_s = 0.0

    def is_stuck(self, now: float, at: Progress, counts: tuple[int, ...]) -> bool:
        """Whether the task has made no progress for too long: `at` is the place of its canonical rank."""
        if self._since is None or counts != self._counts or now - self._looked > _PAUSE_S:
            self._counts, self._since, self._sample = counts, now, None
        self._looked = now
        self.quiet_s = now - self._since
        allowed_s = self._patience.allowed_s(at)
        if not self._patience.least_s or self.quiet_s < allowed_s / 2:
            return False
        if self._sample is None:
            self._sample = now, self._processor_seconds()
        if now - self._sample[0] < allowed_s / 2:
            return False
        is_busy, self._sample = self._is_busy(now, *self._sample), None
        return not is_busy or self.quiet_s > _BUSY_TIMES * allowed_s

    def _is_busy(self, now: float, since: float, used_s: float | None) -> bool:
        now_used_s = self._processor_seconds()
        if used_s is None or now_used_s is None:
            return True  # where it isn't known, the longer limit holds
        return now_used_s - used_s > _BUSY_SHARE * (now - since)
