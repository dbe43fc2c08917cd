"""Laws of the board: fair groups, filters on any fact of a run, and every number from summaries alone."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import relive
from relive.errors import QueryError
from relive.query.compare import LeaderboardTerms, build_leaderboard, leaderboard_rows
from relive.store.catalog import Index


def board(runs: Any, metric: str = "acc", **terms: Any) -> dict[str, Any]:
    return build_leaderboard(runs.index, metric, LeaderboardTerms.of(**terms))


def ids(group: dict[str, Any]) -> list[str]:
    return [row["run"] for row in group["runs"]]


def test_the_best_run_comes_first_with_its_value_args_and_place(runs: Any) -> None:
    low = runs.add({"acc": [0.9, 0.5]}, lr=0.1)
    high = runs.add({"acc": [0.1, 0.7]}, lr=0.2)

    found = board(runs)
    assert (found["metric"], found["order"], found["by"]) == ("acc", "max", "last")
    (group,) = found["groups"]
    assert (group["data_version"], group["reason"]) == ("d1", None)
    assert [(row["run"], row["place"], row["value"], row["args"]) for row in group["runs"]] == [
        (high, 1, 0.7, {"lr": 0.2}),
        (low, 2, 0.5, {"lr": 0.1}),
    ]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"by": "last"}, [0.7, 0.5]),
        ({"by": "best"}, [0.9, 0.7]),
        ({"by": "best", "order": "min"}, [0.1, 0.5]),
        ({"by": "min"}, [0.5, 0.1]),
        ({"by": "mean", "k": 2}, [0.7, 0.4]),
        ({"by": "mean", "k": 1000}, [0.7, 0.4]),
    ],
)
def test_a_run_is_ranked_by_the_requested_value(runs: Any, terms: dict[str, Any], expected: list[float]) -> None:
    runs.add({"acc": [0.9, 0.5]})
    runs.add({"acc": [0.1, 0.7]})

    assert [row["value"] for row in board(runs, **terms)["groups"][0]["runs"]] == pytest.approx(expected)


def test_the_best_value_comes_with_the_iteration_that_logged_it(runs: Any) -> None:
    runs.add({"acc": [0.1, 0.9, 0.5]})

    (row,) = board(runs, by="best")["groups"][0]["runs"]
    assert (row["value"], row["at"]) == (0.9, {"step": 1})


def test_runs_on_other_data_are_grouped_apart_with_the_reason(runs: Any) -> None:
    old = runs.add({"acc": [0.99]}, data="d1")
    new = runs.add({"acc": [0.5]}, data="d2")
    unknown = runs.add({"acc": [0.7]}, data=None)

    groups = board(runs)["groups"]
    assert {group["data_version"]: ids(group) for group in groups} == {"d1": [old], "d2": [new], None: [unknown]}
    reasons = {group["data_version"]: group["reason"] for group in groups}
    assert "2 other runs stand apart, since their data differs" in reasons[None]
    assert reasons["d1"].startswith("other data than the first group")


def test_the_reason_names_what_differs(runs: Any) -> None:
    runs.add({"acc": [0.9]}, data="d1")
    runs.add({"acc": [0.5]}, data="d2")

    newest, other = board(runs)["groups"]
    assert (newest["data_version"], other["data_version"]) == ("d2", "d1")
    assert other["reason"] == "other data than the first group: train d1d1d1d1d1d1 instead of d2d2d2d2d2d2"


def test_runs_are_ranked_across_data_only_on_request(runs: Any) -> None:
    old, new = runs.add({"acc": [0.9]}, data="d1"), runs.add({"acc": [0.95]}, data="d2")

    (group,) = board(runs, across_data=True)["groups"]
    assert ids(group) == [new, old]
    assert (group["data_version"], group["reason"]) == (None, "ranked across 2 data versions, as requested")


def test_code_and_environment_can_be_guarded_too(runs: Any) -> None:
    runs.add({"acc": [0.9]}, packages={"torch": "2.1"})
    runs.add({"acc": [0.8]}, packages={"torch": "2.2"})

    assert len(board(runs)["groups"]) == 1
    first, second = board(runs, guard=["data", "environment"])["groups"]
    assert first["environment"] != second["environment"]
    assert second["reason"] == "other environment than the first group: torch 2.1 instead of 2.2"
    assert len(board(runs, guard="code")["groups"]) == 1


def test_groups_separated_by_a_guard_are_never_ordered_by_value(runs: Any) -> None:
    runs.add({"acc": [0.1]}, data="d1")
    runs.add({"acc": [0.99]}, data="d2")
    runs.add({"acc": [0.2]}, data="d1")

    assert [group["data_version"] for group in board(runs)["groups"]] == ["d1", "d2"]


def test_requested_groups_come_best_first_with_a_summary(runs: Any) -> None:
    for lr, values in ((0.1, [0.5, 0.7]), (0.2, [0.9, 0.8])):
        for seed, value in enumerate(values):
            runs.add({"acc": [value]}, lr=lr, seed=seed)

    first, second = board(runs, group="lr")["groups"]
    assert (first["group"], second["group"]) == ({"lr": 0.2}, {"lr": 0.1})
    assert first["summary"] == pytest.approx({"count": 2, "best": 0.9, "mean": 0.85, "std": math.sqrt(0.005)})


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("wd = 0", [0]),
        ("wd > 0", [1]),
        ("WD > 0", [1]),
        ("opt = 'adam'", [1]),
        ("sweep = 'a' and trial = 3", [0]),
        ("team = 'vision'", [1]),
        ("\"tag.team\" = 'vision'", [1]),
        ("data_version = 'd1'", [0, 1]),
        ("loss < 1", [1]),
        ("acc > 0.75", [1]),
        ("tstamp < '1970-01-01 00:00:02'", [0]),
        ("1 = 1", [0, 1]),
        ("optimizer.beta = 0.9", [0]),
    ],
)
def test_conditions_may_use_args_tags_run_columns_and_logged_names(runs: Any, where: str, expected: list[int]) -> None:
    tags = {"sweep": "a", "trial": 3}
    first = runs.add({"acc": [0.7], "loss": [2.0]}, tags=tags, wd=0, **{"optimizer.beta": 0.9})
    second = runs.add({"acc": [0.8], "loss": [0.5]}, tags={"team": "vision"}, wd=0.1, opt="adam")

    found = [run for group in board(runs, where=where)["groups"] for run in ids(group)]
    assert sorted(found) == sorted([(first, second)[at] for at in expected])


def test_a_condition_that_leaves_no_run_with_a_name_does_not_make_the_name_unknown(runs: Any) -> None:
    runs.add({"acc": [0.7]}, lr=0.1)
    other = runs.add({"acc": [0.8]}, width=3)

    (group,) = board(runs, where="width = 3", group="lr", columns="lr")["groups"]
    assert (ids(group), group["group"]) == ([other], {"lr": None})
    assert board(runs, where="width = 4", group="lr")["groups"] == []


@pytest.mark.parametrize("by", ["last", "mean"])
def test_a_condition_that_no_run_meets_gives_an_empty_board(runs: Any, by: str) -> None:
    runs.add({"acc": [0.7]}, lr=0.1)

    assert board(runs, by=by, k=1_000, where="lr > 1")["groups"] == []


def test_columns_may_be_logged_names_args_tags_and_run_columns(runs: Any) -> None:
    runs.add({"acc": [0.7], "loss": [2.0]}, tags={"sweep": "a"}, lr=0.1)

    (row,) = board(runs, columns=["loss", "lr", "sweep", "outcome"])["groups"][0]["runs"]
    assert row["columns"] == {"loss": 2.0, "lr": 0.1, "sweep": "a", "outcome": "finished"}


def test_nan_infinity_text_and_missing_values_have_defined_places(runs: Any) -> None:
    nothing = runs.add({"loss": [1.0]})
    text = runs.add({"acc": ["good"]})
    diverged = runs.add({"acc": [0.9, math.nan]})
    lowest = runs.add({"acc": [-math.inf]})
    good = runs.add({"acc": [0.5]})

    (group,) = board(runs)["groups"]
    rows = [(row["run"], row["place"], row["value"], row.get("note")) for row in group["runs"]]
    assert rows == [
        (good, 1, 0.5, None),
        (lowest, 2, None, "-inf"),
        (diverged, None, None, "nan"),
        (nothing, None, None, "missing"),
        (text, None, None, "not a number"),
    ]
    assert json.loads(json.dumps(group, allow_nan=False)) == group


def test_equal_runs_share_a_place_and_the_older_comes_first(runs: Any) -> None:
    first, second, third = (runs.add({"acc": [value]}) for value in (0.5, 0.5, 0.4))

    (group,) = board(runs)["groups"]
    assert [(row["run"], row["place"]) for row in group["runs"]] == [(first, 1), (second, 1), (third, 3)]


def test_a_group_in_which_no_run_has_the_metric_is_left_out_and_counted(runs: Any) -> None:
    runs.add({"acc": [0.5]}, data="d1")
    runs.add({"loss": [0.5]}, data="d2")

    found = board(runs)
    assert [group["data_version"] for group in found["groups"]] == ["d1"]
    assert found["left_out"] == 1


def test_a_run_of_several_ranks_is_ranked_by_rank_0_or_by_all_of_them(runs: Any) -> None:
    runs.add([{"acc": [0.9]}, {"acc": [0.5]}, {"acc": [0.1]}])

    values = {
        ranks: board(runs, ranks=ranks)["groups"][0]["runs"][0]["value"] for ranks in ("canonical", "mean", "min")
    }
    assert values == pytest.approx({"canonical": 0.9, "mean": 0.5, "min": 0.1})


def test_live_runs_are_ranked_like_any_other(runs: Any) -> None:
    live = runs.add({"acc": [0.4, 0.6]}, live=True)
    runs.add({"acc": [0.5]})

    (group,) = board(runs, by="best")["groups"]
    assert next((row["run"], row["outcome"]) for row in group["runs"]) == (live, "running")


def test_a_limit_cuts_a_group_and_counts_the_rest(runs: Any) -> None:
    for at in range(5):
        runs.add({"acc": [float(at)]})

    (group,) = board(runs, limit=2)["groups"]
    assert ([row["value"] for row in group["runs"]], group["more"]) == ([4.0, 3.0], 3)


def test_no_point_is_read_for_a_board(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.add({"acc": [0.5] * 300})
    monkeypatch.setattr(Index, "points", lambda *_args, **_how: pytest.fail("points were read"))

    assert board(runs, by="mean", k=100, group="filename", where="acc > 0")["groups"]


def test_the_board_is_the_same_after_the_index_is_rebuilt(runs: Any) -> None:
    for at in range(4):
        runs.add({"acc": [0.1 * at, 0.5]}, lr=at, data=f"d{at % 2}")
    before = board(runs, by="mean", group="lr")

    runs.index.rebuild()
    assert board(runs, by="mean", group="lr") == before


@pytest.mark.parametrize(
    ("metric", "terms", "message"),
    [
        ("ac", {}, "did you mean acc"),
        ("acc", {"where": "lrr = 1"}, "did you mean lr"),
        ("acc", {"by": "median"}, "by='median' is not known; use one of 'last'"),
        ("acc", {"group": "nope"}, "no run has 'nope'"),
        ("acc", {"guards": ["data"]}, "option='guards' is not known"),
        ("acc", {"k": 0}, "k is 1 or more"),
    ],
)
def test_invalid_metrics_and_terms_raise_with_the_remedy(runs: Any, metric: str, terms: Any, message: str) -> None:
    runs.add({"acc": [0.5]}, lr=1)

    with pytest.raises(QueryError, match=message):
        board(runs, metric, **terms)


def test_the_public_function_returns_a_dataframe(runs: Any) -> None:
    runs.add({"acc": [0.5]}, lr=0.1)
    runs.add({"acc": [math.nan]}, lr=0.2)

    frame = relive.leaderboard("acc", home=runs.home.path, columns="outcome")
    assert list(frame.columns) == ["data_version", "place", "run", "value", "note", "outcome", "lr"]
    assert frame["value"].tolist()[0] == 0.5
    assert [frame["place"][0], frame["note"][1]] == [1, "nan"]
    assert leaderboard_rows(board(runs))[0]["lr"] == 0.1
