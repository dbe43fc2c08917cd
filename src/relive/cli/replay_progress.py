"""How far a replay is: the share that is done, the runs and iterations that are replayed now, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from relive.cli.display import format_duration
from relive.cli.targets import short_id

if TYPE_CHECKING:
    from relive.hindsight import Plan
    from relive.hindsight.workers import Task


_TELL_EVERY_S = 5.0
_MOVE_EVERY_S = 0.2
_SHOWN_RUNS = 3
_ALMOST = 0.99  # of a task that has not ended


@dataclass(slots=True)
class ReplayProgress:
    """Estimates the share of a replay that is done, from the iterations of its tasks and their predicted costs."""

    predicted_s: float
    clock: Callable[[], float] = time.perf_counter
    tasks: Sequence[Task] = ()
    _begun_s: dict[int, float] = field(default_factory=dict)  # by the id of a task
    _started_s: float | None = None

    def update(self, tasks: Sequence[Task]) -> None:
        now = self.clock()
        self._started_s = now if self._started_s is None else self._started_s
        self.tasks = tasks
        for task in tasks:
            if task.ranks:
                self._begun_s.setdefault(id(task), now)

    @property
    def done(self) -> float:
        """The share of the predicted work that is done, from 0 to 1."""
        work = sum(max(task.cost_s, 1e-3) for task in self.tasks)
        return sum(self._share(task) * max(task.cost_s, 1e-3) for task in self.tasks) / work if work else 0.0

    @property
    def left_s(self) -> float:
        """The time left: as predicted at first, and more and more as what is done suggests."""
        taken = 0.0 if self._started_s is None else self.clock() - self._started_s
        done = self.done
        return (1 - done) * ((1 - done) * self.predicted_s + taken)

    def describe(self) -> str:
        """Names the runs that are replayed now, each with its iterations."""
        running = [task for task in self.tasks if task.ranks and not task.is_ok]
        words = [f"{short_id(task.run)} {_iterations(task)}".rstrip() for task in running]
        more = f" and {len(words) - _SHOWN_RUNS} more" if len(words) > _SHOWN_RUNS else ""
        return ", ".join(words[:_SHOWN_RUNS]) + more

    def _share(self, task: Task) -> float:
        if task.is_ok:
            return 1.0
        if id(task) not in self._begun_s:
            return 0.0
        by_time = (self.clock() - self._begun_s[id(task)]) / max(task.cost_s, 1e-3)
        of, done = _counted(task), task.done_iterations()
        least, most = (done / of, (done + 1) / of) if of else (0.0, 1.0)
        return min(max(by_time, least), most, _ALMOST)


def _counted(task: Task) -> int:
    """The iterations whose values a task is to give."""
    return sum(visit.counts for visit in task.ranks[0].job.visits) if task.ranks else 0


def _iterations(task: Task) -> str:
    of = _counted(task)
    return f"iteration {min(task.done_iterations() + 1, of)} of {of}" if of else ""


@contextmanager
def showing_progress(plan: Plan) -> Iterator[Any]:
    """Gives the function that watches a replay: it moves a bar at a terminal, and else prints a line now and then."""
    progress = ReplayProgress(plan.cost_s)
    if not sys.stderr.isatty():
        yield _Lines(progress)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.percentage:3.0f} %"), BarColumn(20), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("replaying", total=1.0)
        moved_s = 0.0

        def move(tasks: Sequence[Task]) -> None:
            nonlocal moved_s
            if time.perf_counter() - moved_s > _MOVE_EVERY_S:
                progress.update(tasks)
                shown.update(bar, completed=progress.done, description=_line(progress))
                moved_s = time.perf_counter()

        yield move


def _line(progress: ReplayProgress) -> str:
    left = f"about {format_duration(progress.left_s)} left"
    return ", ".join(part for part in (left, progress.describe()) if part)


class _Lines:
    """Tells progress to a log file: rarely."""

    def __init__(self, progress: ReplayProgress) -> None:
        self._progress = progress
        self._told_at = time.perf_counter()

    def __call__(self, tasks: Sequence[Task]) -> None:
        now = time.perf_counter()
        if now - self._told_at > _TELL_EVERY_S or self._progress.tasks is not tasks:
            self._progress.update(tasks)
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            click.echo(f"replaying: {self._progress.done:.0%}, {_line(self._progress)}", err=True)
