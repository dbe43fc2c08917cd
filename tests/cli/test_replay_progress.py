"""Laws of the progress of a replay: it moves, names what is running, and the time left goes towards zero."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from relive.cli.replay_progress import ReplayProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def task(run: str, *, cost_s: float, iterations: int) -> Any:
    """A task whose worker has begun."""
    visits = [SimpleNamespace(counts=True)] * iterations
    found = SimpleNamespace(run=run, cost_s=cost_s, is_ok=False, done=0, failures=[])
    found.ranks = [SimpleNamespace(job=SimpleNamespace(visits=visits))]
    found.done_iterations = lambda: found.done
    return found


def test_progress_names_the_runs_and_iterations_that_are_replayed() -> None:
    tasks = [task("7c1f0b5e99", cost_s=4.0, iterations=4), task("ac4c693811", cost_s=1.0, iterations=0)]
    tasks[0].done = 2
    progress = ReplayProgress(4.0, Clock())
    progress.update(tasks)

    assert progress.describe() == "7c1f0b5e iteration 3 of 4, ac4c6938"


def test_a_replay_without_iterations_moves_with_the_time_and_never_ends_early() -> None:
    clock = Clock()
    progress = ReplayProgress(10.0, clock)
    shares, only = [], [task("7c1f0b5e99", cost_s=10.0, iterations=0)]
    for clock.now in (0.0, 4.0, 8.0, 80.0):
        progress.update(only)
        shares.append(progress.done)

    assert shares == [0.0, 0.4, 0.8, 0.99]
    only[0].is_ok = True
    assert progress.done == 1.0
    assert progress.left_s == 0.0


def test_the_time_left_is_predicted_at_first_and_then_follows_what_was_done() -> None:
    clock = Clock()
    progress = ReplayProgress(10.0, clock)
    slow = [task("7c1f0b5e99", cost_s=10.0, iterations=10)]
    progress.update(slow)
    assert progress.left_s == 10.0

    slow[0].done, clock.now = 5, 15.0

    assert progress.done == 0.6  # half of it is done, and the sixth iteration takes longer than predicted
    assert 7.0 < progress.left_s < 10.0
