"""Executes tasks on worker processes: starts them, watches them, retries failures once, and ends them on Ctrl-C.

A task whose workers make no progress is stopped, with the stacks of its processes.

The ranks of a run are workers that are started together and ended together.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.hindsight.plan import Costs
from relive.hindsight.workers.supervision import (
    Patience,
    Progress,
    Watchdog,
    collect_stacks,
    processor_seconds,
    read_progress,
)
from relive.hindsight.workers.wire import Job, WorkerReport
from relive.hindsight.workers.worker_start import Process, WorkerStarter

POLL_S = 0.05
ATTEMPTS = 2
FAILURE_GRACE_S = 1.0  # for the other ranks to report when one has failed
CUT_GRACE_S = 10.0  # for the other ranks to end when one ended by its recorded error; most do at once
_LOST_CONNECTION = re.compile(r"connection|broken pipe|by peer|gloo|nccl|DistBackendError|timed? ?out", re.IGNORECASE)
_KILLED = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL)


@dataclass(slots=True)
class RankTask:
    """The part of a task that one process executes: that of one rank."""

    job: Job
    env: Mapping[str, str]
    was_cut_short: bool = False  # the recorded rank did not finish
    report: WorkerReport | None = None
    is_cut_short: bool = False  # nor did the replayed one, for the same reason

    @property
    def folder(self) -> Path:
        return Path(self.job.folder)

    @property
    def is_ok(self) -> bool:
        return self.is_cut_short or (self.report is not None and self.report.ok)

    def done_iterations(self) -> int:
        """The number of iterations done so far; read from the journal while the worker runs."""
        if self.report is not None:
            return len(self.report.iterations_s)
        try:
            return (self.folder / "0.lines").read_bytes().count(b'"k":"turn"')
        except OSError:
            return 0


@dataclass(slots=True)
class Task:
    """A segment of a run, executed by one process for each rank, and its result."""

    prepare: Callable[[], list[RankTask]]  # makes the folders; called when workers are free
    python: str
    cost_s: float
    run: str
    modules: tuple[str, ...] = ()  # libraries that a fork server may load
    before_s: float = 0.0  # the recorded time before the main loop
    script_s: float = 0.0  # included in `cost_s`: the script itself, from its main loop on
    costs: Costs = field(default_factory=Costs)  # the prediction is based on these
    width: int = 1  # the number of processes
    patience: Patience = field(default_factory=Patience)
    ranks: list[RankTask] = field(default_factory=list)  # the canonical rank first
    attempts: int = 0
    took_s: float = 0.0
    waited_s: float = 0.0  # included in `took_s`: until the process existed, while libraries were loaded
    failures: list[str] = field(default_factory=list)
    traceback: str = ""  # of the last failure

    @property
    def report(self) -> WorkerReport | None:
        """The report of the canonical rank."""
        return self.ranks[0].report if self.ranks else None

    @property
    def is_ok(self) -> bool:
        return bool(self.ranks) and all(rank.is_ok for rank in self.ranks)

    @property
    def is_worth_retrying(self) -> bool:
        """Whether it failed for a reason that may not recur."""
        return not self.is_ok and not self.damaged and not self.needs_start and self.attempts < ATTEMPTS

    @property
    def damaged(self) -> list[str]:
        return [name for rank in self.ranks if rank.report is not None for name in rank.report.damaged]

    @property
    def needs_start(self) -> str:
        """Why only a replay from the start can be right; empty if that isn't known."""
        return next((r.report.needs_start for r in self.ranks if r.report is not None and r.report.needs_start), "")

    def done_iterations(self) -> int:
        """The number of iterations that every rank has done so far."""
        return min((rank.done_iterations() for rank in self.ranks), default=0)


Watch = Callable[[Sequence[Task]], None]


def execute_tasks(tasks: Sequence[Task], workers: int, watch: Watch, starter: WorkerStarter) -> bool:
    """Executes all tasks, the longest first; returns False when the user stopped them. What is done is kept.

    A task that needs more processes than there are workers runs alone.
    """
    waiting = sorted(tasks, key=lambda task: -task.cost_s)
    running: list[_ProcessGroup] = []
    try:
        while waiting or running:
            while waiting and _has_room(running, waiting[0], workers):
                running.append(_ProcessGroup(waiting.pop(0), starter))
            starter.wait(POLL_S)
            for group in [group for group in running if group.is_over()]:
                running.remove(group)
                if group.task.is_worth_retrying:
                    waiting.insert(0, group.task)
            watch(tasks)
    except KeyboardInterrupt:
        return False
    finally:
        for group in running:
            group.end()
    return True


def _has_room(running: Sequence[_ProcessGroup], task: Task, workers: int) -> bool:
    return not running or sum(group.task.width for group in running) + task.width <= workers


class _ProcessGroup:
    """The processes of one task, one for each rank.

    Ranks depend on each other to the end: a rank that is done waits until all are ended together, and when one fails,
    the others would wait for it forever.
    """

    def __init__(self, task: Task, starter: WorkerStarter) -> None:
        self.task = task
        task.attempts += 1
        self._begun = time.perf_counter()
        task.ranks = task.prepare()
        modules = task.modules if task.attempts == 1 else ()  # a retry runs in new processes
        requested = time.perf_counter()
        self._processes: list[Process] = []
        self._cut_at: float | None = None
        self._failed_at: float | None = None
        try:
            for rank in task.ranks:
                self._processes.append(starter.start(task.python, rank.job, rank.env, modules))
        except BaseException:
            self.end()
            raise
        self._watchdog = Watchdog(task.patience, lambda: processor_seconds(self._pids()))
        # Includes the start of the fork server, if none was running.
        self._starting_s = time.perf_counter() - requested if modules else 0.0

    def is_over(self) -> bool:
        task, codes = self.task, [process.poll() for process in self._processes]
        for rank, code in zip(task.ranks, codes, strict=True):
            if rank.report is None and (code is not None or task.width > 1):
                rank.report = WorkerReport.read(rank.folder)
        pairs = list(zip(task.ranks, codes, strict=True))
        self._mark_cut_short(pairs)
        failed = [pair for pair in pairs if _has_failed(*pair)]
        if failed and self._waits_for_other_failures(pairs):
            return False
        if not failed and not task.is_ok:
            return self._stop_if_stuck()
        self._note_times()
        if failed:
            rank, code = min(failed, key=_failure_order)
            prefix = f"rank {rank.job.rank}: " if task.width > 1 else ""
            task.failures.append(prefix + _describe_failure(rank.report, code, _read_tail(rank.job.stderr)))
            task.traceback = rank.report.traceback if rank.report is not None else ""
        self.end()
        return True

    def _note_times(self) -> None:
        self.task.took_s = time.perf_counter() - self._begun
        self.task.waited_s = self._starting_s + max(process.waited_s for process in self._processes)

    def _pids(self) -> list[int]:
        return [pid for process in self._processes if (pid := process.pid) is not None]

    def _stop_if_stuck(self) -> bool:
        """Ends the processes if none of them makes progress; a rank that is done waits for the others."""
        task = self.task
        progress = [Progress() if rank.report is not None else read_progress(rank.folder) for rank in task.ranks]
        if not self._watchdog.is_stuck(time.monotonic(), progress[0], tuple(one.notes for one in progress)):
            return False
        self._note_times()
        running = [(rank, process) for rank, process in zip(task.ranks, self._processes, strict=True)
                   if rank.report is None and process.pid is not None]  # fmt: skip
        stacks = [collect_stacks(process.pid, rank.folder) for rank, process in running if process.pid is not None]
        task.failures.append(task.patience.describe(progress[0], self._watchdog.quiet_s))
        task.traceback = "".join(stacks)
        self.end()
        return True

    def _waits_for_other_failures(self, pairs: Sequence[tuple[RankTask, int | None]]) -> bool:
        """Whether to wait a moment longer: the rank that caused the failure may report last."""
        self._failed_at = self._failed_at or time.perf_counter()
        is_quiet = all(code is not None or rank.report is not None for rank, code in pairs)
        return not is_quiet and time.perf_counter() - self._failed_at < FAILURE_GRACE_S

    def _mark_cut_short(self, pairs: Sequence[tuple[RankTask, int | None]]) -> None:
        """Marks ranks that can't go on because another ended by its recorded error, as they could not then."""
        if not any(rank.report is not None and rank.report.ok and rank.report.ended_early for rank, _ in pairs):
            return
        self._cut_at = self._cut_at or time.perf_counter()
        is_expired = time.perf_counter() - self._cut_at > CUT_GRACE_S
        for rank, code in pairs:
            if rank.was_cut_short and (_has_failed(rank, code) or (rank.report is None and is_expired)):
                rank.is_cut_short = True

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.end()


def _has_failed(rank: RankTask, code: int | None) -> bool:
    return not rank.is_ok and (code is not None or rank.report is not None)


def _failure_order(failed: tuple[RankTask, int | None]) -> tuple[int, int]:
    """Sorts the rank that caused the failure first: killed ones, then by report time, lost connections last."""
    rank, code = failed
    if rank.report is None:
        return (0 if code in _KILLED else 3), 0
    return (2 if _LOST_CONNECTION.search(rank.report.error) else 1), rank.report.written_ns


def _describe_failure(report: WorkerReport | None, code: int | None, stderr: str) -> str:
    if report is not None:
        return report.error
    if code is not None and code < 0:
        return f"the worker was killed by {signal.Signals(-code).name}"
    return (
        f"the worker ended with exit code {code}: {stderr.splitlines()[-1] if stderr else 'it wrote nothing to stderr'}"
    )


def _read_tail(path: Path, size: int = 4_000) -> str:
    try:
        return path.read_bytes()[-size:].decode("utf-8", "replace")
    except OSError:
        return ""
