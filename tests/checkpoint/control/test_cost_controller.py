"""Laws of the controller: the overhead stays within ε, and checkpoints are taken as often as that allows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.checkpoint.control.cost_controller import Ledger, SlowDown


def simulate(costs: list[float], times: list[float], overhead: float = 1 / 15) -> tuple[list[int], float]:
    """Runs blocks one after the other; returns the blocks with a checkpoint, and the share of time that those cost."""
    ledger, elapsed, kept = Ledger(overhead=overhead), 0.0, []
    for number, (cost, took) in enumerate(zip(costs, times, strict=True)):
        elapsed += took
        block = ledger.record_execution("epoch", took)
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

    # A cost is known only afterwards: one checkpoint that is more expensive than all before may exceed the budget.
    assert share * sum(times) <= overhead * sum(times) + max(costs)


@pytest.mark.parametrize("jump", [0.1, 10])
def test_a_change_of_disk_speed_midway_is_followed(jump: float) -> None:
    _, share = simulate([0.1] * 200 + [0.1 * jump] * 400, [1.0] * 600)

    assert share <= 1 / 15 * 1.05


def test_the_slow_down_of_iterations_while_a_checkpoint_is_written_is_charged() -> None:
    slow = SlowDown()
    for took in (1.0, 1.01, 0.99, 1.0):
        slow.observe(took, is_writing=False)
    slow.observe(1.5, is_writing=True)
    slow.observe(1.2, is_writing=True)

    assert slow.take_extra_cost(charged_s=0.1, wrote_s=5.0) == pytest.approx(0.6, abs=0.1), (
        "beyond what the writer's CPU was charged"
    )
    assert slow.take_extra_cost(charged_s=0.0, wrote_s=5.0) == 0.0, "once"


def test_the_ordinary_scatter_of_iterations_is_no_slow_down() -> None:
    slow = SlowDown()
    for took in (1.0, 1.4, 0.7, 1.2, 0.9):
        slow.observe(took, is_writing=False)
    slow.observe(1.5, is_writing=True)

    assert slow.take_extra_cost(charged_s=0.0, wrote_s=5.0) == 0.0


def test_a_slow_down_is_unknown_before_some_iterations_without_a_checkpoint() -> None:
    slow = SlowDown()
    slow.observe(1.0, is_writing=False)
    slow.observe(9.0, is_writing=True)

    assert slow.take_extra_cost(charged_s=0.0, wrote_s=5.0) == 0.0


def test_a_hidden_slow_down_is_kept_within_the_promise() -> None:
    """Iterations take 0.3 s longer while a checkpoint is written, of which the writer's CPU shows a tenth."""
    ledger, slow, elapsed, lost, is_writing, background_s = Ledger(), SlowDown(), 0.0, 0.0, False, 0.0
    for number in range(2000):
        usual = 1.0 if number < 1000 else 0.5  # iterations get faster midway
        took = usual + 0.3 if is_writing else usual
        lost += took - usual
        elapsed += took
        block = ledger.record_execution("epoch", took)
        slow.observe(took, is_writing=is_writing)
        if is_writing:
            ledger.charge_extra(slow.take_extra_cost(background_s, 0.5))
        is_writing = ledger.is_worth_it(block, size_bytes=10_000_000, elapsed_s=elapsed)
        if is_writing:
            block.checkpoints += 1
            background_s = (
                0.03 if slow.is_known else 0.3
            )  # while the slow-down is unknown, the writer's time is charged
            ledger.charge(background_s)

    assert block.checkpoints > 250
    assert lost / (elapsed - lost) <= 1 / 15 * 1.05


def test_slow_restores_are_weighed_against_checkpoints() -> None:
    ledger = Ledger(overhead=0.5)
    ledger.charge(0.1)

    assert ledger.restore_ratio(10**8) == 1.0
    ledger.restore_bytes_per_s = 10**8
    assert ledger.restore_ratio(10**8) == pytest.approx(10.0)
    block = ledger.record_execution("epoch", 1.0)
    assert not ledger.is_worth_it(block, size_bytes=10**8, elapsed_s=10.0), "0.1 is more than 1/11"
    ledger.restore_bytes_per_s = 10**9
    assert ledger.is_worth_it(block, size_bytes=10**8, elapsed_s=10.0)
