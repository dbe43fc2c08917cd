"""Laws of ranks: steps are aligned by their loops, skew is |canonical − mean|, alarms miss no poisoned rank."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive.errors import NotFound, QueryError
from relive.query.compare import SkewRule, rank_skew
from relive.query.compare.rank_spread import RankSpread, measure_spread
from relive.query.compare.skew_alarms import first_breach, live_ranks, make_alert, settled_steps
from relive.store.catalog import find_run


def make_spread(*ranks: list[float | None]) -> RankSpread:
    """Returns a spread from the values of each rank; None is a step at which the rank logged nothing."""
    value = np.array([[np.nan if one is None else one for one in rank] for rank in ranks]).T
    logged = np.array([[one is not None for one in rank] for rank in ranks]).T
    at = tuple({"step": step} for step in range(len(value)))
    return RankSpread("r" * 12, "loss", tuple(range(len(ranks))), at, value, logged)


def test_each_step_has_the_canonical_value_and_aggregates_over_ranks(runs: Any) -> None:
    run = runs.add([{"loss": [1.0, 2.0]}, {"loss": [1.0, 5.0]}, {"loss": [1.0, 2.0]}])

    found = rank_skew(runs.index, run, "loss")
    assert (found["run"], found["ranks"], found["world_size"], found["max_skew"]) == (run, [0, 1, 2], 3, 1.0)
    assert found["steps"][1] == {
        "at": {"step": 1}, "canonical": 2.0, "mean": 3.0, "min": 2.0, "max": 5.0, "skew": 1.0, "ranks": 3,
        "worst_rank": 1,
    }  # fmt: skip


def test_ranks_are_aligned_by_iteration_not_by_the_number_of_values(runs: Any) -> None:
    run = runs.add([{"loss": [1.0, 2.0, 3.0]}, {"loss": [(), (), 3.5]}])

    steps = rank_skew(runs.index, run, "loss")["steps"]
    assert [(step["at"]["step"], step["ranks"], step["skew"]) for step in steps] == [
        (0, 1, 0.0),
        (1, 1, 0.0),
        (2, 2, 0.25),
    ]


def test_nan_on_one_rank_makes_mean_and_skew_null_and_that_rank_the_worst(runs: Any) -> None:
    run = runs.add([{"loss": [1.0]}, {"loss": [math.nan]}])

    found = rank_skew(runs.index, run, "loss")
    (step,) = found["steps"]
    assert (step["canonical"], step["mean"], step["skew"], step["worst_rank"]) == (1.0, None, None, 1)
    json.dumps(found, allow_nan=False)


def test_a_rank_that_never_started_is_listed_as_missing(runs: Any) -> None:
    run = runs.add([{"loss": [1.0]}, {"loss": [2.0]}], header={"world_size": 4})

    assert rank_skew(runs.index, run, "loss")["missing_ranks"] == [2, 3]


def test_values_logged_twice_in_one_iteration_are_two_steps(runs: Any) -> None:
    run = runs.add([{"loss": [(1.0, 2.0), (2.0, 3.0)]}, {"loss": [(1.0,), (2.0, 5.0)]}])

    frame = relive.skew(run, "loss", home=runs.home.path)
    assert frame[["step", "canonical", "mean"]].to_numpy().tolist() == [[0, 1, 1], [0, 2, 2], [1, 2, 2], [1, 3, 4]]


def test_an_unknown_name_raises_with_the_names_that_were_logged(runs: Any) -> None:
    run = runs.add({"loss": [1.0]})

    with pytest.raises(QueryError, match="did not log 'los'; it logged loss"):
        rank_skew(runs.index, run, "los")
    with pytest.raises(NotFound, match="`relive runs` lists them"):
        rank_skew(runs.index, "nope", "loss")


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=5), min_size=2, max_size=5))
def test_the_skew_follows_its_definition(ranks: list[list[float]]) -> None:
    found = make_spread(*ranks)

    expected = [abs(ranks[0][step] - sum(rank[step] for rank in ranks) / len(ranks)) for step in range(5)]
    assert found.skew.tolist() == pytest.approx(expected, abs=1e-9)


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["loss", "loss>", ">0.1", "loss>x", "loss>nan", "loss>-1", "loss<0.1", ""])
def test_text_that_is_not_a_rule_raises(text: str) -> None:
    with pytest.raises(QueryError, match="is not a rule; write a name"):
        SkewRule.parse(text)


def test_a_rule_is_a_name_and_a_bound() -> None:
    assert SkewRule.parse("val/loss > 0.05", 20) == SkewRule("val/loss", 0.05, 20)
    assert SkewRule.parse("a>b>1") == SkewRule("a>b", 1.0, 1)
    with pytest.raises(QueryError, match="at least 1 step"):
        SkewRule.parse("loss>1", 0)


def test_a_rule_is_broken_by_exactly_its_number_of_consecutive_steps() -> None:
    good, bad = 0.0, 10.0
    found = make_spread([0.0] * 7, [bad, bad, good, bad, bad, bad, good])

    breach = first_breach(found, SkewRule("loss", 0.1, 3), 7)
    assert breach is not None
    assert (breach.first, breach.last) == (3, 5)
    assert first_breach(found, SkewRule("loss", 0.1, 4), 7) is None
    assert first_breach(found, SkewRule("loss", 0.1, 3), 5) is None


def test_a_nan_skew_counts_as_above_the_bound() -> None:
    breach = first_breach(make_spread([1.0, 1.0], [1.0, math.nan]), SkewRule("loss", 1e9, 1), 2)

    assert breach is not None
    assert breach.last == 1


def test_steps_without_a_canonical_value_or_a_second_rank_are_skipped() -> None:
    found = make_spread([0.0, None, 0.0], [5.0, 5.0, 5.0])

    breach = first_breach(found, SkewRule("loss", 0.1, 2), 3)
    assert breach is not None
    assert (breach.first, breach.last) == (0, 2)
    assert first_breach(make_spread([5.0, 5.0], [None, None]), SkewRule("loss", 0.1, 1), 2) is None


def test_an_alert_names_the_step_and_the_worst_rank() -> None:
    found = make_spread([1.0, 1.0], [1.0, 1.0], [1.0, 4.0])
    rule = SkewRule("loss", 0.5, 1)
    breach = first_breach(found, rule, 2)

    assert breach is not None
    alarm = make_alert(found, rule, breach)
    assert (alarm["worst_rank"], alarm["at"], alarm["values"]) == (2, {"step": 1}, {"0": 1.0, "1": 1.0, "2": 4.0})
    assert alarm["text"] == "run rrrrrrrr: skew of loss is 1 at step 1, above 0.5 for 1 step; rank 2 is farthest off"
    json.dumps(alarm, allow_nan=False)


def test_a_step_is_settled_when_every_live_rank_has_passed_it() -> None:
    found = make_spread([1.0, 1.0, 1.0], [1.0, None, None], [1.0, None, 1.0])

    assert settled_steps(found, [0, 1, 2]) == 1
    assert settled_steps(found, [0, 2]) == 3
    assert settled_steps(found, []) == 3
    assert settled_steps(found, [0, 3]) == 0


def test_a_rank_that_is_far_behind_is_not_waited_for_forever() -> None:
    found = make_spread([1.0] * 1_500, [1.0] + [None] * 1_499)

    assert settled_steps(found, [0, 1]) == 500


def test_ranks_of_a_live_run_are_live(runs: Any) -> None:
    live = runs.add([{"loss": [1.0]}, {"loss": [2.0]}], live=True)
    ended = runs.add([{"loss": [1.0]}])
    index = runs.index

    assert live_ranks(find_run(index.runs(), live)) == [0, 1]
    assert live_ranks(find_run(index.runs(), ended)) == []
    assert measure_spread(index, find_run(index.runs(), live), "loss").ranks == (0, 1)
