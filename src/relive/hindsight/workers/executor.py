"""Worker processes: started, watched, tried once more when they die, and ended when the user has enough.

The ranks of a run are workers that are started together, and end together.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.hindsight.plan import Costs
from relive.hindsight.workers.wire import Job, WorkerReport
from relive.hindsight.workers.worker_start import Process, WorkerStarter

POLL_S = 0.05
ATTEMPTS = 2
LAST_WORDS_S = 1.0  # for the other ranks when one has failed
PATIENCE_S = 10.0  # with ranks that lost one that ended as it did then; most notice at once
_LOST_A_RANK = re.compile(r"connection|broken pipe|by peer|gloo|nccl|DistBackendError|timed? ?out", re.IGNORECASE)
_KILLED = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL)


@dataclass(slots=True)
class Share:
    """What one process does of a task: all of it, or the part of one rank."""

    job: Job
    env: Mapping[str, str]
    was_cut: bool = False  # when it was recorded, it did not come to an end of its own
    report: WorkerReport | None = None
    is_cut: bool = False  # nor did it now, for the same reason

    @property
    def folder(self) -> Path:
        return Path(self.job.folder)

    @property
    def is_ok(self) -> bool:
        return self.is_cut or (self.report is not None and self.report.ok)

    def done_iterations(self) -> int:
        if self.report is not None:
            return len(self.report.iterations_s)
        try:
            return (self.folder / "0.lines").read_bytes().count(b'"k":"turn"')
        except OSError:
            return 0


@dataclass(slots=True)
class Task:
    """A segment of a run, done by one process for each rank, and what became of it."""

    prepare: Callable[[], list[Share]]  # makes the folders; called when there is room for the processes
    python: str
    cost_s: float
    label: str
    modules: tuple[str, ...] = ()  # what may be loaded before the script is
    before_s: float = 0.0  # what the run took before its main loop
    script_s: float = 0.0  # of the cost, what the script itself takes from there on
    costs: Costs = field(default_factory=Costs)  # by which all this was predicted
    width: int = 1  # how many processes it takes
    shares: list[Share] = field(default_factory=list)  # that of the canonical rank first
    attempts: int = 0
    took_s: float = 0.0
    waited_s: float = 0.0  # of that, until there was a process: libraries were being loaded
    failures: list[str] = field(default_factory=list)
    traceback: str = ""  # of the last of them

    @property
    def report(self) -> WorkerReport | None:
        """Of the canonical rank."""
        return self.shares[0].report if self.shares else None

    @property
    def is_ok(self) -> bool:
        return bool(self.shares) and all(share.is_ok for share in self.shares)

    @property
    def is_worth_trying(self) -> bool:
        """Once more: it failed, but not by what will be the same the next time."""
        return not self.is_ok and not self.damaged and self.attempts < ATTEMPTS

    @property
    def damaged(self) -> list[str]:
        return [name for share in self.shares if share.report is not None for name in share.report.damaged]

    def done_iterations(self) -> int:
        """How many iterations all ranks have done so far; looked up while they are at it."""
        return min((share.done_iterations() for share in self.shares), default=0)


Watch = Callable[[Sequence[Task]], None]


def execute(tasks: Sequence[Task], workers: int, watch: Watch, starter: WorkerStarter) -> bool:
    """Do all tasks, the longest first, on so many workers; False when the user stopped it: what is done is kept.

    A task that needs more processes than there are workers is done alone.
    """
    waiting = sorted(tasks, key=lambda task: -task.cost_s)
    running: list[_Group] = []
    try:
        while waiting or running:
            while waiting and _has_room(running, waiting[0], workers):
                running.append(_Group(waiting.pop(0), starter))
            starter.wait(POLL_S)
            for group in [group for group in running if group.is_over()]:
                running.remove(group)
                if group.task.is_worth_trying:
                    waiting.insert(0, group.task)
            watch(tasks)
    except KeyboardInterrupt:
        return False
    finally:
        for group in running:
            group.end()
    return True


def _has_room(running: Sequence[_Group], task: Task, workers: int) -> bool:
    return not running or sum(group.task.width for group in running) + task.width <= workers


class _Group:
    """The processes that do one task: one, or as many as the run had ranks.

    Ranks need each other to the end: one that is done waits to be ended with the others, and when one fails the others
    would wait for it for ever.
    """

    def __init__(self, task: Task, starter: WorkerStarter) -> None:
        self.task = task
        task.attempts += 1
        self._begun = time.perf_counter()
        task.shares = task.prepare()
        modules = task.modules if task.attempts == 1 else ()  # the second time nothing is taken for granted
        asked = time.perf_counter()
        self._processes: list[Process] = []
        self._cut_at: float | None = None
        self._failed_at: float | None = None
        try:
            for share in task.shares:
                self._processes.append(starter.start(task.python, share.job, share.env, modules))
        except BaseException:
            self.end()
            raise
        # The process to fork from had to be started, if there was none.
        self._starting_s = time.perf_counter() - asked if modules else 0.0

    def is_over(self) -> bool:
        task, codes = self.task, [process.poll() for process in self._processes]
        for share, code in zip(task.shares, codes, strict=True):
            if share.report is None and (code is not None or task.width > 1):
                share.report = WorkerReport.read(share.folder)
        pairs = list(zip(task.shares, codes, strict=True))
        self._cut_short(pairs)
        failed = [pair for pair in pairs if _has_failed(*pair)]
        if failed and self._may_others_tell(pairs):
            return False
        if not failed and not task.is_ok:
            return False
        task.took_s = time.perf_counter() - self._begun
        task.waited_s = self._starting_s + max(process.waited_s for process in self._processes)
        if failed:
            share, code = min(failed, key=_how_late)
            rank = f"rank {share.job.rank}: " if task.width > 1 else ""
            task.failures.append(rank + _why(share.report, code, _tail(share.job.stderr)))
            task.traceback = share.report.traceback if share.report is not None else ""
        self.end()
        return True

    def _may_others_tell(self, pairs: Sequence[tuple[Share, int | None]]) -> bool:
        """Whether to wait for a moment: who failed last may be the reason why others did."""
        self._failed_at = self._failed_at or time.perf_counter()
        is_quiet = all(code is not None or share.report is not None for share, code in pairs)
        return not is_quiet and time.perf_counter() - self._failed_at < LAST_WORDS_S

    def _cut_short(self, pairs: Sequence[tuple[Share, int | None]]) -> None:
        """When a rank ended by the error that ended it then, the others can't go on, as they could not then."""
        if not any(share.report is not None and share.report.ok and share.report.ended_early for share, _ in pairs):
            return
        self._cut_at = self._cut_at or time.perf_counter()
        is_time = time.perf_counter() - self._cut_at > PATIENCE_S
        for share, code in pairs:
            if share.was_cut and (_has_failed(share, code) or (share.report is None and is_time)):
                share.is_cut = True

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.end()


def _has_failed(share: Share, code: int | None) -> bool:
    return not share.is_ok and (code is not None or share.report is not None)


def _how_late(failed: tuple[Share, int | None]) -> tuple[int, int]:
    """To find who failed first, since the others fail for want of it: who was killed, then by the time of reports."""
    share, code = failed
    if share.report is None:
        return (0 if code in _KILLED else 3), 0
    return (2 if _LOST_A_RANK.search(share.report.error) else 1), share.report.written_ns


def _why(report: WorkerReport | None, code: int | None, said: str) -> str:
    if report is not None:
        return report.error
    if code is not None and code < 0:
        return f"the worker was killed by {signal.Signals(-code).name}"
    return f"the worker ended with exit code {code}: {said.splitlines()[-1] if said else 'it said nothing'}"


def _tail(path: Path, size: int = 4_000) -> str:
    try:
        return path.read_bytes()[-size:].decode("utf-8", "replace")
    except OSError:
        return ""
