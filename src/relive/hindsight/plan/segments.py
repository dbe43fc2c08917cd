"""The plan of one run as data: the iterations that each worker visits, what it restores and skips, and the cost.

Workers, the planner and the cost model share these types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from relive.hindsight.plan.run_profile import RestorePoint

Selection = Mapping[int, Collection[int]]  # the iterations to run, by the number of the main loop; absent: all


@dataclass(frozen=True, slots=True)
class Costs:
    """What a replay costs beyond the script itself: defaults, refined by measurements of earlier replays."""

    worker_s: float = 0.1  # to fork a worker from a fork server, make its folder and end it
    process_s: float = 0.3  # to start a worker as a new process, besides the script and its imports
    bytes_per_s: float = 1.5e9  # of restoring a checkpoint
    restore_s: float = 0.004  # of restoring any checkpoint, however small
    first_restore_s: float = 0.03  # how much longer the first restore of a worker takes
    loading_s: float = 0.0  # of the libraries that workers need, once for all of them; 0: not known
    own_share: float = 0.1  # of the time before the main loop, the share that remains with libraries loaded
    ending_s: float = 0.03  # exit handlers and teardown of a script that runs to its end
    after_s: float = 0.02  # of checking and merging the values of a run
    pace: float = 1.0  # time of the script now, divided by its recorded time
    is_loaded: bool = False  # the worker is forked from a fork server that has the libraries

    def set_up(self, before_s: float) -> float:
        """The time of a worker outside of its main loop, given the recorded time before the main loop."""
        return self.worker_s + self.own_share * before_s if self.is_loaded else self.process_s + before_s

    def restore(self, state: RestorePoint | None) -> float:
        return self.restore_s + state.size_bytes / self.bytes_per_s if state is not None else 0.0


@dataclass(frozen=True, slots=True)
class Visit:
    """An iteration of a main loop that is run. `restore` is the checkpoint that is put back before it.

    A `warm` visit is run for the state it leaves: its values are discarded up to the nested loop whose end is restored.
    A `passed` visit leads to a later one: it skips every nested loop that can be skipped, and its values are discarded.
    """

    loop: int
    iteration: int
    cost_s: float
    restoring_s: float = 0.0  # included in `cost_s`
    restore: str | None = None
    warm: bool = False
    passed: bool = False

    @property
    def counts(self) -> bool:
        """Whether its values are reported."""
        return not (self.warm or self.passed)


@dataclass(frozen=True, slots=True)
class Skip:
    """A loop that is not run: its end state is restored instead. `unmutes`: values after it are reported again."""

    manifest: str
    unmutes: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a run that one worker (or one for each rank) replays."""

    visits: tuple[Visit, ...]
    skips: Mapping[int, Skip]
    ends: Mapping[int, str]  # main loops that are left early, and skipped blocks, with the state restored there
    stop: bool  # after the last visit, rather than running the rest of the script
    cost_s: float
    script_s: float = 0.0  # included in `cost_s`: the script itself, from its main loop on

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
