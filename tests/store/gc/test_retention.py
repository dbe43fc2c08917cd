"""Laws of retention: an even selection that keeps the end and the middle, and a budget that hits the oldest first."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ReliveError
from relive.settings import load
from relive.store.chunks import Piece
from relive.store.gc import Policy
from relive.store.gc.repack_plan import spans_of
from relive.store.gc.retention import (
    BEYOND_BUDGET,
    BEYOND_KEEP,
    HeldCheckpoint,
    Stock,
    Usage,
    evenly,
    plan_drops,
    selected,
)

times = st.lists(st.integers(1, 10_000), min_size=1, max_size=60).map(sorted)
counts = st.integers(1, 70)


def stock(run: str, count: int, *, used_us: int = 0, size: int = 100, **how: bool) -> Stock[str]:
    """A run that took a checkpoint a second, each in a pack of its own."""
    held = [
        HeldCheckpoint(f"{run}{n}", n * 1000, frozenset({(f"{run}{n}.pack", 8, size)})) for n in range(1, count + 1)
    ]
    return Stock(run, 0, used_us, tuple(held), **how)


def packs(*stocks: Stock[str]) -> dict[str, int]:
    return {pack: size for one in stocks for held in one.held for pack, _, size in held.spans}


def left(stocks: list[Stock[str]], policy: Policy) -> dict[str, list[int]]:
    """The checkpoints that remain of each run, by number."""
    gone = {drop.key for drop in plan_drops(stocks, policy, packs(*stocks))}
    return {one.run: [h.time_us // 1000 for h in one.held if h.key not in gone] for one in stocks}


# --- an even selection ------------------------------------------------------------------------------------------------


@given(times, counts)
def test_as_many_are_kept_as_asked_for_and_the_last_is_among_them(times: list[int], count: int) -> None:
    chosen = evenly(times, 0, count)

    assert len(chosen) == len(set(chosen)) == min(count, len(times))
    assert chosen == sorted(chosen)
    assert chosen[-1] == len(times) - 1


@given(st.integers(1, 300), counts)
def test_of_checkpoints_at_a_steady_pace_the_gaps_differ_by_one_at_most(taken: int, count: int) -> None:
    numbers = [0, *(at + 1 for at in evenly([n * 1000 for n in range(1, taken + 1)], 0, count))]
    gaps = [later - earlier for earlier, later in pairwise(numbers)]

    assert max(gaps) - min(gaps) <= 1


@given(times)
def test_of_two_one_is_nearest_to_the_middle(times: list[int]) -> None:
    chosen = evenly(times, 0, 2)

    away = [abs(time - times[-1] / 2) for time in times[:-1]]
    assert len(times) == 1 or away[chosen[0]] == min(away)


@given(times, st.integers(2, 70))
def test_some_kept_one_lies_in_the_middle_third_if_any_does(times: list[int], count: int) -> None:
    third = times[-1] / 3
    in_the_middle = [third <= time <= 2 * third for time in times]

    kept_all = count >= len(times)
    steady = max(b - a for a, b in zip([0, *times], times, strict=False)) <= third / 2
    if any(in_the_middle) and (kept_all or steady):
        assert any(in_the_middle[at] for at in evenly(times, 0, count))


@given(times, counts)
def test_thinning_twice_to_the_same_count_changes_nothing_more(times: list[int], count: int) -> None:
    once = [times[at] for at in evenly(times, 0, count)]

    assert [once[at] for at in evenly(once, 0, count)] == once


def test_a_run_that_goes_on_stays_even_when_it_is_thinned_again_and_again() -> None:
    kept: list[int] = []
    for now in range(1, 101):
        kept.append(now)
        kept = [kept[at] for at in evenly(kept, 0, 10)]

    gaps = [later - earlier for earlier, later in zip([0, *kept], kept, strict=False)]
    assert kept[-1] == 100
    assert max(gaps) <= 20, "an even share would be ten"


def test_keep_thins_each_run_by_itself_and_leaves_pinned_ones_alone() -> None:
    runs = [stock("a", 8), stock("b", 2), stock("c", 8, is_pinned=True)]

    assert left(runs, Policy(keep=4)) == {"a": [2, 4, 6, 8], "b": [1, 2], "c": [1, 2, 3, 4, 5, 6, 7, 8]}
    assert left(runs, Policy(keep=1))["a"] == [8]
    assert left(runs, Policy()) == {"a": [*range(1, 9)], "b": [1, 2], "c": [*range(1, 9)]}
    assert {drop.reason for drop in plan_drops(runs, Policy(keep=4), {})} == {BEYOND_KEEP}


# --- a budget ---------------------------------------------------------------------------------------------------------


def test_a_budget_thins_the_run_that_was_used_longest_ago_and_only_as_far_as_needed() -> None:
    runs = [stock("new", 8, used_us=9), stock("old", 8, used_us=1)]

    assert left(runs, Policy(budget_bytes=1600)) == {"new": [*range(1, 9)], "old": [*range(1, 9)]}
    assert left(runs, Policy(budget_bytes=1200)) == {"new": [*range(1, 9)], "old": [2, 4, 6, 8]}
    assert left(runs, Policy(budget_bytes=700)) == {"new": [2, 3, 5, 6, 8], "old": [4, 8]}


def test_below_its_middle_and_its_end_a_run_goes_only_if_all_have_gone_so_far() -> None:
    runs = [stock("new", 8, used_us=9), stock("old", 8, used_us=1)]

    assert left(runs, Policy(budget_bytes=400)) == {"new": [4, 8], "old": [4, 8]}
    assert left(runs, Policy(budget_bytes=300)) == {"new": [4, 8], "old": [8]}
    assert left(runs, Policy(budget_bytes=200)) == {"new": [8], "old": [8]}
    assert left(runs, Policy(budget_bytes=100)) == {"new": [8], "old": []}
    assert left(runs, Policy(budget_bytes=1)) == {"new": [], "old": []}


def test_a_live_run_keeps_its_last_and_a_pinned_one_everything_whatever_the_budget() -> None:
    runs = [stock("live", 4, used_us=9, is_live=True), stock("pinned", 4, is_pinned=True), stock("old", 4)]

    assert left(runs, Policy(budget_bytes=1)) == {"live": [4], "pinned": [1, 2, 3, 4], "old": []}


def test_keep_comes_before_the_budget_and_each_reason_is_told() -> None:
    runs = [stock("a", 8, used_us=1), stock("b", 8, used_us=2)]
    drops = plan_drops(runs, Policy(keep=4, budget_bytes=600), packs(*runs))

    assert [drop.reason for drop in drops].count(BEYOND_KEEP) == 8
    assert [drop.key for drop in drops if drop.reason == BEYOND_BUDGET] == ["a2", "a6"]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.booleans(), st.booleans()), max_size=5),
    st.integers(1, 5_000),
    st.none() | st.integers(1, 6),
)
def test_a_budget_holds_or_no_run_that_may_be_thinned_has_any_left(
    shapes: list[tuple[int, int, bool, bool]], budget: int, keep: int | None
) -> None:
    runs = [
        stock(f"r{n}-", count, used_us=used, is_pinned=pinned, is_live=live)
        for n, (count, used, pinned, live) in enumerate(shapes)
    ]
    remaining = left(runs, Policy(keep, budget))

    usage = Usage(packs(*runs))
    usage.add(held for one in runs for held in one.held if held.time_us // 1000 in remaining[one.run])
    least = {one.run: len(one.held) if one.is_pinned else min(1, len(one.held)) * one.is_live for one in runs}
    assert usage.total_bytes <= budget or {run: len(its) for run, its in remaining.items()} == least
    for one in runs:
        assert not remaining[one.run] or remaining[one.run][-1] == len(one.held), "whatever is left, the last is"


def test_what_checkpoints_share_is_counted_once_and_freed_with_the_last_of_them() -> None:
    shared = ("first.pack", 8, 900)
    a = HeldCheckpoint("a", 1, frozenset({shared, ("first.pack", 908, 92)}))
    b = HeldCheckpoint("b", 2, frozenset({shared, ("second.pack", 8, 42)}))
    usage = Usage({"first.pack": 1000, "second.pack": 50})

    usage.add([a, b])
    assert usage.total_bytes == 1050
    usage.remove([a])
    assert usage.total_bytes == 1050, "the first pack is still needed"
    usage.remove([b])
    assert usage.total_bytes == 0


def test_a_pack_of_which_little_is_needed_counts_as_what_is_needed_since_it_will_be_rewritten() -> None:
    usage = Usage({"first.pack": 1000})

    usage.add([HeldCheckpoint("a", 1, frozenset({("first.pack", 8, 499)}))])
    assert usage.total_bytes == 499
    usage.add([HeldCheckpoint("b", 1, frozenset({("first.pack", 507, 1)}))])
    assert usage.total_bytes == 1000


@given(st.lists(st.sets(st.integers(0, 20), max_size=12), max_size=6), st.data())
def test_parts_of_packs_add_up_to_the_pieces_whichever_checkpoints_are_kept(
    needs: list[set[int]], data: st.DataObject
) -> None:
    pieces = [Piece(f"{n % 3}.pack", n * 10, n + 1, 100, 0, str(n)) for n in range(21)]
    spans = spans_of({str(at): [pieces[n] for n in sorted(need)] for at, need in enumerate(needs)})
    kept = data.draw(st.sets(st.sampled_from(range(len(needs))))) if needs else set()

    needed = set().union(*(needs[at] for at in kept))
    parts = set().union(*(spans[str(at)] for at in kept))
    for pack in ("0.pack", "1.pack", "2.pack"):
        assert sum(size for name, _, size in parts if name == pack) == sum(
            pieces[n].stored_bytes for n in needed if pieces[n].pack == pack
        )


def test_a_selection_gives_the_checkpoints_themselves() -> None:
    one = stock("a", 3)

    assert selected(one, 2) == (one.held[1], one.held[2])
    assert selected(dataclasses.replace(one, held=()), 2) == ()


# --- the settings -----------------------------------------------------------------------------------------------------


def test_keep_is_all_or_a_number_however_it_is_written(tmp_path: Path) -> None:
    def policy(**environ: str) -> Policy:
        settings = load(tmp_path, environ)
        return Policy.of(settings.keep, settings.budget_bytes)

    assert policy() == Policy(None, 0)
    assert policy().is_idle
    assert policy(RELIVE_KEEP="5", RELIVE_BUDGET_BYTES="1000") == Policy(5, 1000)
    (tmp_path / "relive.toml").write_text("keep = 5")
    assert policy() == Policy(5, 0)
    (tmp_path / "relive.toml").write_text('keep = "all"')
    assert policy() == Policy(None, 0)


@pytest.mark.parametrize(("keep", "budget"), [("none", 0), ("0", 0), ("-1", 0), ("2.5", 0), ("", 0), ("all", -1)])
def test_a_policy_that_means_nothing_says_what_to_write(keep: str, budget: int) -> None:
    with pytest.raises(ReliveError, match="write"):
        Policy.of(keep, budget)
