"""Laws of the watchdog: a worker that hangs is stopped, and one that is only slow is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import relive
from relive.hindsight.workers.supervision import Patience, Progress, Watchdog
from tests.conftest import Script

IN_LOOP = Progress(1, loop=2, iteration=0)
OUTSIDE = Progress(1)


def stopped_at(
    patience: Patience, at: Progress, *, busy: float = 0.0, count: Callable[[int], int] = lambda _: 1
) -> int:
    """The second at which a worker is stopped that uses `busy` of a processor; at most 5,000."""
    now = 0
    watchdog = Watchdog(patience, lambda: busy * now)
    for now in range(5_000):
        if watchdog.is_stuck(now, at, (count(now),)):
            return now
    return 5_000


@pytest.mark.parametrize(
    ("patience", "at", "second"),
    [
        pytest.param(Patience(), IN_LOOP, 60, id="the least time"),
        pytest.param(Patience(6.0), IN_LOOP, 6, id="the user's least time"),
        pytest.param(Patience(iterations_s={2: 30.0}), IN_LOOP, 300, id="slow iterations"),
        pytest.param(Patience(iterations_s={7: 30.0}), IN_LOOP, 60, id="slow iterations of another loop"),
        pytest.param(Patience(), OUTSIDE, 300, id="set-up"),
        pytest.param(Patience(outside_s=50.0), OUTSIDE, 500, id="slow set-up"),
        pytest.param(Patience(restored_bytes=2_000_000_000), IN_LOOP, 160, id="large checkpoints"),
        pytest.param(Patience(0.0), IN_LOOP, 5_000, id="no limit"),
    ],
)
def test_the_recorded_times_determine_how_long_a_worker_may_be_quiet(patience: Patience, at: Progress, second: int):
    assert stopped_at(patience, at) == second


def test_a_worker_that_computes_may_be_quiet_for_longer():
    assert 600 < stopped_at(Patience(), IN_LOOP, busy=1.0) < 700


def test_progress_begins_the_time_anew():
    assert stopped_at(Patience(), IN_LOOP, count=lambda now: now // 59) == 5_000
    assert stopped_at(Patience(), IN_LOOP, count=lambda now: min(now, 100)) == 160


def test_the_time_in_which_the_parent_was_stopped_does_not_count():
    watchdog = Watchdog(Patience(), lambda: 0.0)
    times: Iterator[int] = iter([*range(50), *range(1_000, 1_050)])

    assert not any(watchdog.is_stuck(now, IN_LOOP, (1,)) for now in times)


SCRIPT = """
    import multiprocessing, threading
    import relive

    def hang_after(epoch):
        if epoch:
            child = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
            child.start()
            child.join()
        return epoch

    net = [1.0]
    with relive.checkpointing(net=net, every=1):
        for epoch in relive.loop("epoch", range(3)):
            net[0] *= 0.5
            relive.log("loss", net[0])
            {added}
"""
ADDED = "relive.log('x', hang_after(epoch))"


@pytest.mark.long
def test_a_worker_that_hangs_is_stopped_with_its_children_and_says_where(script: Script):
    script(SCRIPT.format(added="pass"))
    script.write(SCRIPT.format(added=ADDED))

    (run,) = relive.replay("x", workers=1, patience=0.5, home=script.home).runs

    (missing,) = run.missing
    assert "no progress for" in missing
    assert "in epoch 1" in missing
    assert "--patience" in missing
    assert "iterations 1–2" in missing
    stacks = "".join(run.tracebacks)
    assert "in hang_after" in stacks
    assert "started by it" in stacks
    assert relive.dataframe("x", home=script.home)["x"].dropna().tolist() == [0]


@pytest.mark.long
def test_patience_is_an_option_of_the_command(script: Script):
    script(SCRIPT.format(added="pass"))
    script.write(SCRIPT.format(added=ADDED))

    done: Any = script.relive("replay", "x", "--patience", "0.5", check=False)

    assert done.returncode == 1
    assert "in hang_after" in done.stderr
    assert "--patience SECONDS" in done.stderr
