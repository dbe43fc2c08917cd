"""Laws of ranking: a total order with documented places for ties, NaN, infinities and missing values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.query.compare.scores import (
    MAX,
    MIN,
    Score,
    aggregate_ranks,
    assign_places,
    guess_order,
    mean_score,
    score,
    sort_key,
    summarize,
)
from relive.store.catalog import Summary

numbers = st.floats(allow_nan=True, allow_infinity=True)
scores = st.lists(st.one_of(numbers.map(lambda number: Score(number, None)), st.just(Score())), max_size=30)
orders = st.sampled_from([MIN, MAX])


def ranked(found: list[Score], order: str) -> list[Score]:
    listed = list(enumerate(found))
    return [one for _, one in sorted(listed, key=lambda pair: sort_key(pair[1], order, pair[0]))]


def kind(one: Score) -> int:
    return 2 if one.number is None else 1 if math.isnan(one.number) else 0


@given(scores, orders)
def test_numbers_come_first_then_nan_then_missing_values(found: list[Score], order: str) -> None:
    kinds = [kind(one) for one in ranked(found, order)]

    assert kinds == sorted(kinds)


@given(scores, orders)
def test_a_better_number_never_ranks_below_a_worse_one(found: list[Score], order: str) -> None:
    values = [one.number for one in ranked(found, order) if kind(one) == 0]

    assert values == sorted(values, reverse=order == MAX)  # type: ignore[type-var]


@given(st.lists(numbers, max_size=20), orders, st.randoms())
def test_the_board_does_not_depend_on_the_order_of_its_input(found: list[float], order: str, random: Any) -> None:
    listed = [(Score(number, None), at) for at, number in enumerate(found)]
    shuffled = listed.copy()
    random.shuffle(shuffled)

    board, again = (sorted(rows, key=lambda row: sort_key(row[0], order, row[1])) for rows in (listed, shuffled))
    assert [at for _, at in board] == [at for _, at in again]


@given(scores, orders)
def test_lower_and_higher_are_mirror_images_of_each_other(found: list[Score], order: str) -> None:
    mirrored = [Score(None if one.number is None else -one.number, None) for one in found]
    other = MAX if order == MIN else MIN

    board, mirror = ranked(found, order), ranked(mirrored, other)
    assert [kind(one) for one in board] == [kind(one) for one in mirror]
    assert [one.number for one in board if kind(one) == 0] == [-(m.number or 0) for m in mirror if kind(m) == 0]


@given(scores, orders)
def test_equal_numbers_share_a_place_and_the_next_one_is_behind_all_of_them(found: list[Score], order: str) -> None:
    board = ranked(found, order)
    assigned = assign_places(board)

    for at, (one, place) in enumerate(zip(board, assigned, strict=True)):
        better = [other for other in board[:at] if kind(other) == 0 and other.number != one.number]
        assert place == (len(better) + 1 if kind(one) == 0 else None)


def test_huge_numbers_are_summarized_without_overflow() -> None:
    found = summarize([Score(1.7e308, None), Score(1.7e308, None), Score(-1.7e308, None)], MAX)

    assert found["mean"] == pytest.approx(1.7e308 / 3)
    assert found["std"] is None
    assert mean_score([1.7e308, 1.7e308]).number == 1.7e308


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), orders)
def test_the_summary_of_a_group_lies_within_its_values(values: list[float], order: str) -> None:
    found = summarize([Score(value, None) for value in values], order)

    assert found["count"] == len(values)
    assert min(values) - 1e-6 <= found["mean"] <= max(values) + 1e-6
    assert found["best"] == (min(values) if order == MIN else max(values))
    assert (found["std"] is None) == (len(values) == 1)


def summary(**given: Any) -> Summary:
    facts = {"name": "x", "count": 1, "last": 1.0, "last_text": None, "lowest": 1.0, "highest": 1.0, "last_us": 0}
    return Summary(**{**facts, "path": (), **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "by", "number", "note"),
    [
        (None, "last", None, "missing"),
        (summary(last=0.5), "last", 0.5, None),
        (summary(last=None, last_text='{"$float":"nan"}', lowest=0.2), "last", math.nan, "nan"),
        (summary(last=None, last_text='{"$float":"nan"}', lowest=0.2), "min", 0.2, None),
        (summary(last=None, last_text='{"$float":"nan"}', lowest=None), "min", math.nan, "nan"),
        (summary(last=3.0, last_text="3"), "last", 3, None),
        (summary(last=1.0, last_text="true"), "last", True, None),
        (summary(last=None, last_text='"good"', lowest=None, highest=None), "max", None, "not a number"),
        (summary(last=None, last_text="null", lowest=None, highest=None), "last", None, "not a number"),
        (summary(last=None, last_text='{"$int":"0x8000000000000000"}'), "last", 2.0**63, None),
        (summary(last=math.inf), "last", math.inf, "inf"),
    ],
)
def test_the_score_of_a_summary(found: Summary | None, by: str, number: float | None, note: str | None) -> None:
    result = score(found, by)

    assert result.note == note
    assert result.number == number or (number is not None and math.isnan(number) and math.isnan(result.number or 0))


def test_a_mean_over_nan_is_nan_so_that_a_diverged_run_does_not_look_good() -> None:
    assert mean_score([1.0, math.nan]).note == "nan"
    assert mean_score([1.0, 3.0]).number == 2.0
    assert mean_score([1.0, math.inf]).note == "inf"
    assert mean_score([]).note == "missing"


def test_ranks_without_a_value_are_ignored() -> None:
    found = [Score(1.0, None), Score(), Score(4.0, None)]

    assert [aggregate_ranks(found, how).number for how in ("mean", "min", "max")] == [2.5, 1.0, 4.0]
    assert aggregate_ranks([Score(), Score()], "mean").note == "missing"
    assert aggregate_ranks([*found, Score(math.nan, "nan")], "max").note == "nan"


@pytest.mark.parametrize("name", ["loss", "val_loss", "valLoss", "test/rmse", "WER", "perplexity", "step_time"])
def test_names_for_which_lower_is_better(name: str) -> None:
    assert guess_order(name) == MIN


@pytest.mark.parametrize("name", ["val_acc", "f1", "reward", "lossless_ratio", "auc", "x"])
def test_names_for_which_higher_is_better(name: str) -> None:
    assert guess_order(name) == MAX
