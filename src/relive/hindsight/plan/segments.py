"""The plan of one run as data: the iterations that each worker visits, what it restores and skips, and the cost.

Workers, the planner and the cost model share these types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from relive.hindsight.plan.run_profile import Kept


@dataclass(frozen=True, slots=True)
class Costs:
    """What a replay costs beyond the script itself: measured on this machine, refined by earlier replays."""

    worker_s: float = 0.1  # to start a worker where libraries are loaded, make its folder and end it
    process_s: float = 0.3  # to start one in a process of its own, besides the script and its imports
    bytes_per_s: float = 1.5e9  # of restoring a checkpoint
    restore_s: float = 0.004  # of restoring any, however small
    first_restore_s: float = 0.03  # how much longer the first one of a worker takes
    loading_s: float = 0.0  # of the libraries that workers need, once for all of them; 0: not known
    own_share: float = 0.1  # of what comes before the main loop, that is left when the libraries are loaded already
    ending_s: float = 0.03  # what a script that runs to its end does at exit
    after_s: float = 0.02  # of checking what came out for a run, and keeping it
    pace: float = 1.0  # how long the script takes now, by what it took then
    is_loaded: bool = False  # libraries are, or will be, when a worker begins

    def set_up(self, before_s: float) -> float:
        """Until a worker is where its main loop begins, which took so long when it was recorded; and its end."""
        return self.worker_s + self.own_share * before_s if self.is_loaded else self.process_s + before_s

    def restore(self, state: Kept | None) -> float:
        return self.restore_s + state.size_bytes / self.bytes_per_s if state is not None else 0.0


@dataclass(frozen=True, slots=True)
class Visit:
    """An iteration of a main loop that is run. `restore` is put back before it begins.

    A `warm` one is there for the state it leaves: up to its nested loop, whose end is restored, nothing counts.
    One that is only `passed` leads to a later one: it skips all nested loops that can be, and nothing of it counts.
    """

    loop: int
    iteration: int
    cost_s: float
    restoring_s: float = 0.0  # of that
    restore: str | None = None
    warm: bool = False
    passed: bool = False

    @property
    def counts(self) -> bool:
        return not (self.warm or self.passed)


@dataclass(frozen=True, slots=True)
class Skip:
    """A loop that is not run: its end is restored instead. `unmutes`: what follows it counts again."""

    manifest: str
    unmutes: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """What one worker does of one run."""

    visits: tuple[Visit, ...]
    skips: Mapping[int, Skip]
    ends: Mapping[int, str]  # main loops that are left early, and skipped blocks, with the end that is restored then
    stop: bool  # when all is visited, rather than running the rest of the script
    cost_s: float
    script_s: float = 0.0  # of that, the script's own from its main loop on

    @property
    def iterations(self) -> int:
        return sum(visit.counts for visit in self.visits)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How one run is replayed."""

    run: str
    depth: str
    segments: tuple[Segment, ...]
    resume: str  # "resume", "pseudoresume", "from the start", or "" when no loop is entered
    reasons: tuple[str, ...] = ()

    @property
    def cost_s(self) -> float:
        return sum(segment.cost_s for segment in self.segments)

    @property
    def iterations(self) -> int:
        return sum(segment.iterations for segment in self.segments)


Wanted = Mapping[int, Collection[int]]  # iterations of main loops, by the loop's number; absent: all
