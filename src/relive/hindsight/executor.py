"""Worker processes: started, watched, tried once more when they die, and ended when the user has enough."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.hindsight.job import Job, Report
from relive.hindsight.planner import Costs
from relive.hindsight.starting import Starter

POLL_S = 0.05
ATTEMPTS = 2


@dataclass(slots=True)
class Task:
    """A job and what became of it."""

    prepare: Callable[[], tuple[Job, dict[str, str]]]  # makes its folder; called when a worker is free
    python: str
    cost_s: float
    label: str
    modules: tuple[str, ...] = ()  # what may be loaded before the script is
    before_s: float = 0.0  # what the run took before its main loop
    script_s: float = 0.0  # of the cost, what the script itself takes from there on
    costs: Costs = field(default_factory=Costs)  # by which all this was predicted
    job: Job | None = None
    attempts: int = 0
    report: Report | None = None
    said: str = ""  # the end of what it wrote to stderr, when it died without a report
    took_s: float = 0.0
    waited_s: float = 0.0  # of that, until there was a process: libraries were being loaded
    failures: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path | None:
        return Path(self.job.folder) if self.job is not None else None

    @property
    def is_ok(self) -> bool:
        return self.report is not None and self.report.ok

    @property
    def is_worth_trying(self) -> bool:
        """Once more: it failed, but not by what will be the same the next time."""
        is_damaged = self.report is not None and self.report.damaged
        return not self.is_ok and not is_damaged and self.attempts < ATTEMPTS

    @property
    def damaged(self) -> list[str]:
        return self.report.damaged if self.report is not None else []

    def done_turns(self) -> int:
        """How many iterations are done so far; looked up while the worker is at it."""
        if self.report is not None:
            return len(self.report.turns_s)
        try:
            return (Path(self.folder or "") / "0.lines").read_bytes().count(b'"k":"turn"')
        except OSError:
            return 0


Watch = Callable[[Sequence[Task]], None]


def execute(tasks: Sequence[Task], workers: int, watch: Watch, starter: Starter) -> bool:
    """Do all tasks, the longest first, on so many workers; False when the user stopped it: what is done is kept."""
    waiting = sorted(tasks, key=lambda task: -task.cost_s)
    running: list[_Worker] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Worker(waiting.pop(0), starter))
            starter.wait(POLL_S)
            for worker in [worker for worker in running if worker.is_over()]:
                running.remove(worker)
                if worker.task.is_worth_trying:
                    waiting.insert(0, worker.task)
            watch(tasks)
    except KeyboardInterrupt:
        return False
    finally:
        for worker in running:
            worker.end()
    return True


class _Worker:
    """A process that does one task."""

    def __init__(self, task: Task, starter: Starter) -> None:
        self.task = task
        task.attempts += 1
        task.report, task.said = None, ""
        self._begun = time.perf_counter()
        task.job, env = task.prepare()
        modules = task.modules if task.attempts == 1 else ()  # the second time nothing is taken for granted
        asked = time.perf_counter()
        self._process = starter.start(task.python, task.job, env, modules)
        # The process to fork from had to be started, if there was none.
        self._starting_s = time.perf_counter() - asked if modules else 0.0

    def is_over(self) -> bool:
        code = self._process.poll()
        if code is None:
            return False
        task = self.task
        folder = Path(task.job.folder) if task.job is not None else Path()
        task.took_s, task.waited_s = time.perf_counter() - self._begun, self._starting_s + self._process.waited_s
        task.report = Report.read(folder)
        if not task.is_ok:
            task.said = _tail(folder / "stderr")
            task.failures.append(_why(task.report, code, task.said))
        return True

    def end(self) -> None:
        self._process.end()


def _why(report: Report | None, code: int, said: str) -> str:
    if report is not None:
        return report.error
    if code < 0:
        return f"the worker was killed by {signal.Signals(-code).name}"
    return f"the worker ended with exit code {code}: {said.splitlines()[-1] if said else 'it said nothing'}"


def _tail(path: Path, size: int = 4_000) -> str:
    try:
        return path.read_bytes()[-size:].decode("utf-8", "replace")
    except OSError:
        return ""
