"""Laws of the controller: ε is kept over the whole run, and checkpoints are had as often as that allows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.checkpoint.controller import Ledger


def simulate(costs: list[float], times: list[float], overhead: float = 1 / 15) -> tuple[list[int], float]:
    """Run blocks one after the other; gives the blocks that were kept, and the share of time that they cost."""
    ledger, elapsed, kept = Ledger(overhead=overhead), 0.0, []
    for number, (cost, took) in enumerate(zip(costs, times, strict=True)):
        elapsed += took
        block = ledger.executed("epoch", took)
        if ledger.is_worth_it(block, size_bytes=int(cost * 5e8), elapsed_s=elapsed):
            block.checkpoints += 1
            ledger.charge(cost)
            elapsed += cost
            kept.append(number)
    return kept, ledger.spent_s / sum(times)


def test_cheap_checkpoints_are_taken_every_time() -> None:
    kept, share = simulate([0.01] * 100, [1.0] * 100)

    assert kept == list(range(100))
    assert share <= 0.011


def test_an_epoch_shorter_than_its_checkpoint_still_gets_some_evenly_spaced() -> None:
    kept, share = simulate([1.2] * 200, [1.0] * 200)

    gaps = [b - a for a, b in itertools.pairwise(kept)]
    assert len(kept) >= 6
    assert share <= 1 / 15
    assert max(gaps) <= 2 * min(gaps)


def test_a_first_checkpoint_is_paid_for_by_time_already_earned() -> None:
    kept, share = simulate([9.0] * 300, [1.0] * 300)

    assert kept[0] >= 130
    assert share <= 1 / 15


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.floats(0.001, 5), st.floats(0.01, 3)), min_size=20, max_size=200),
    st.sampled_from([0.01, 1 / 15, 0.2]),
)
def test_the_promise_holds_whatever_time_and_disk_do(blocks: list[tuple[float, float]], overhead: float) -> None:
    costs, times = [cost for cost, _ in blocks], [took for _, took in blocks]
    _, share = simulate(costs, times, overhead)

    # A cost is known only when it is paid: one checkpoint that turned out dearer than any before may overdraw.
    assert share * sum(times) <= overhead * sum(times) + max(costs)


@pytest.mark.parametrize("jump", [0.1, 10])
def test_a_change_of_disk_speed_midway_is_followed(jump: float) -> None:
    _, share = simulate([0.1] * 200 + [0.1 * jump] * 400, [1.0] * 600)

    assert share <= 1 / 15 * 1.05
