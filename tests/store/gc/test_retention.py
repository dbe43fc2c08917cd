"""Laws of retention: an even selection keeps the end and the middle, and a budget thins the oldest runs first."""

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
from relive.store.gc.repack_plan import spans_by_manifest
from relive.store.gc.retention import (
    BEYOND_BUDGET,
    BEYOND_KEEP,
    PackUsage,
    RunCheckpoints,
    StoredCheckpoint,
    even_positions,
    plan_drops,
    select_evenly,
)

times = st.lists(st.integers(1, 10_000), min_size=1, max_size=60).map(sorted)
counts = st.integers(1, 70)


def make_run(run: str, count: int, *, used_us: int = 0, size: int = 100, **flags: bool) -> RunCheckpoints[str]:
    """A run that took a checkpoint a second, each in a pack of its own."""
    checkpoints = [
        StoredCheckpoint(f"{run}{n}", n * 1000, frozenset({(f"{run}{n}.pack", 8, size)})) for n in range(1, count + 1)
    ]
    return RunCheckpoints(run, 0, used_us, tuple(checkpoints), **flags)


def pack_bytes(*runs: RunCheckpoints[str]) -> dict[str, int]:
    return {pack: size for run in runs for checkpoint in run.checkpoints for pack, _, size in checkpoint.spans}


def remaining_of(runs: list[RunCheckpoints[str]], policy: Policy) -> dict[str, list[int]]:
    """Returns the numbers of the checkpoints that each run keeps."""
    gone = {drop.key for drop in plan_drops(runs, policy, pack_bytes(*runs))}
    return {run.run: [c.time_us // 1000 for c in run.checkpoints if c.key not in gone] for run in runs}


# --- even selection ---------------------------------------------------------------------------------------------------


@given(times, counts)
def test_as_many_are_kept_as_asked_for_and_the_last_is_among_them(times: list[int], count: int) -> None:
    chosen = even_positions(times, 0, count)

    assert len(chosen) == len(set(chosen)) == min(count, len(times))
    assert chosen == sorted(chosen)
    assert chosen[-1] == len(times) - 1


@given(st.integers(1, 300), counts)
def test_gaps_between_regular_checkpoints_differ_by_one_at_most(taken: int, count: int) -> None:
    numbers = [0, *(at + 1 for at in even_positions([n * 1000 for n in range(1, taken + 1)], 0, count))]
    gaps = [later - earlier for earlier, later in pairwise(numbers)]

    assert max(gaps) - min(gaps) <= 1


@given(times)
def test_of_two_one_is_nearest_to_the_middle(times: list[int]) -> None:
    chosen = even_positions(times, 0, 2)

    away = [abs(time - times[-1] / 2) for time in times[:-1]]
    assert len(times) == 1 or away[chosen[0]] == min(away)


@given(times, st.integers(2, 70))
def test_a_checkpoint_in_the_middle_third_is_kept_if_there_is_one(times: list[int], count: int) -> None:
    third = times[-1] / 3
    in_the_middle = [third <= time <= 2 * third for time in times]

    kept_all = count >= len(times)
    steady = max(b - a for a, b in zip([0, *times], times, strict=False)) <= third / 2
    if any(in_the_middle) and (kept_all or steady):
        assert any(in_the_middle[at] for at in even_positions(times, 0, count))


@given(times, counts)
def test_thinning_twice_to_the_same_count_changes_nothing_more(times: list[int], count: int) -> None:
    once = [times[at] for at in even_positions(times, 0, count)]

    assert [once[at] for at in even_positions(once, 0, count)] == once


def test_a_live_run_that_is_thinned_repeatedly_stays_even() -> None:
    kept: list[int] = []
    for now in range(1, 101):
        kept.append(now)
        kept = [kept[at] for at in even_positions(kept, 0, 10)]

    gaps = [later - earlier for earlier, later in zip([0, *kept], kept, strict=False)]
    assert kept[-1] == 100
    assert max(gaps) <= 20, "an even share would be ten"


def test_keep_thins_each_run_by_itself_and_leaves_pinned_ones_alone() -> None:
    runs = [make_run("a", 8), make_run("b", 2), make_run("c", 8, is_pinned=True)]

    assert remaining_of(runs, Policy(keep=4)) == {"a": [2, 4, 6, 8], "b": [1, 2], "c": [1, 2, 3, 4, 5, 6, 7, 8]}
    assert remaining_of(runs, Policy(keep=1))["a"] == [8]
    assert remaining_of(runs, Policy()) == {"a": [*range(1, 9)], "b": [1, 2], "c": [*range(1, 9)]}
    assert {drop.reason for drop in plan_drops(runs, Policy(keep=4), {})} == {BEYOND_KEEP}


# --- budget -----------------------------------------------------------------------------------------------------------


def test_a_budget_thins_the_run_that_was_used_longest_ago_and_only_as_far_as_needed() -> None:
    runs = [make_run("new", 8, used_us=9), make_run("old", 8, used_us=1)]

    assert remaining_of(runs, Policy(budget_bytes=1600)) == {"new": [*range(1, 9)], "old": [*range(1, 9)]}
    assert remaining_of(runs, Policy(budget_bytes=1200)) == {"new": [*range(1, 9)], "old": [2, 4, 6, 8]}
    assert remaining_of(runs, Policy(budget_bytes=700)) == {"new": [2, 3, 5, 6, 8], "old": [4, 8]}


def test_a_run_loses_its_middle_or_end_only_when_all_runs_are_thinned_that_far() -> None:
    runs = [make_run("new", 8, used_us=9), make_run("old", 8, used_us=1)]

    assert remaining_of(runs, Policy(budget_bytes=400)) == {"new": [4, 8], "old": [4, 8]}
    assert remaining_of(runs, Policy(budget_bytes=300)) == {"new": [4, 8], "old": [8]}
    assert remaining_of(runs, Policy(budget_bytes=200)) == {"new": [8], "old": [8]}
    assert remaining_of(runs, Policy(budget_bytes=100)) == {"new": [8], "old": []}
    assert remaining_of(runs, Policy(budget_bytes=1)) == {"new": [], "old": []}


def test_a_live_run_keeps_its_last_and_a_pinned_one_everything_whatever_the_budget() -> None:
    runs = [make_run("live", 4, used_us=9, is_live=True), make_run("pinned", 4, is_pinned=True), make_run("old", 4)]

    assert remaining_of(runs, Policy(budget_bytes=1)) == {"live": [4], "pinned": [1, 2, 3, 4], "old": []}


def test_keep_is_applied_before_the_budget_and_each_reason_is_reported() -> None:
    runs = [make_run("a", 8, used_us=1), make_run("b", 8, used_us=2)]
    drops = plan_drops(runs, Policy(keep=4, budget_bytes=600), pack_bytes(*runs))

    assert [drop.reason for drop in drops].count(BEYOND_KEEP) == 8
    assert [drop.key for drop in drops if drop.reason == BEYOND_BUDGET] == ["a2", "a6"]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.booleans(), st.booleans()), max_size=5),
    st.integers(1, 5_000),
    st.none() | st.integers(1, 6),
)
def test_a_budget_holds_or_no_run_that_may_be_thinned_has_any_checkpoint_left(
    shapes: list[tuple[int, int, bool, bool]], budget: int, keep: int | None
) -> None:
    runs = [
        make_run(f"r{n}-", count, used_us=used, is_pinned=pinned, is_live=live)
        for n, (count, used, pinned, live) in enumerate(shapes)
    ]
    remaining = remaining_of(runs, Policy(keep, budget))

    usage = PackUsage(pack_bytes(*runs))
    usage.add(c for run in runs for c in run.checkpoints if c.time_us // 1000 in remaining[run.run])
    counts = {run.run: len(run.checkpoints) for run in runs}
    least = {run.run: counts[run.run] if run.is_pinned else min(1, counts[run.run]) * run.is_live for run in runs}
    assert usage.total_bytes <= budget or {run: len(its) for run, its in remaining.items()} == least
    for run in runs:
        assert not remaining[run.run] or remaining[run.run][-1] == counts[run.run], "the last is kept longest"


def test_what_checkpoints_share_is_counted_once_and_freed_with_the_last_of_them() -> None:
    shared = ("first.pack", 8, 900)
    a = StoredCheckpoint("a", 1, frozenset({shared, ("first.pack", 908, 92)}))
    b = StoredCheckpoint("b", 2, frozenset({shared, ("second.pack", 8, 42)}))
    usage = PackUsage({"first.pack": 1000, "second.pack": 50})

    usage.add([a, b])
    assert usage.total_bytes == 1050
    usage.remove([a])
    assert usage.total_bytes == 1050, "the first pack is still needed"
    usage.remove([b])
    assert usage.total_bytes == 0


def test_a_sparse_pack_counts_as_its_needed_bytes_since_it_will_be_rewritten() -> None:
    usage = PackUsage({"first.pack": 1000})

    usage.add([StoredCheckpoint("a", 1, frozenset({("first.pack", 8, 499)}))])
    assert usage.total_bytes == 499
    usage.add([StoredCheckpoint("b", 1, frozenset({("first.pack", 507, 1)}))])
    assert usage.total_bytes == 1000


@given(st.lists(st.sets(st.integers(0, 20), max_size=12), max_size=6), st.data())
def test_spans_add_up_to_the_pieces_whichever_checkpoints_are_kept(needs: list[set[int]], data: st.DataObject) -> None:
    pieces = [Piece(f"{n % 3}.pack", n * 10, n + 1, 100, 0, str(n)) for n in range(21)]
    spans = spans_by_manifest({str(at): [pieces[n] for n in sorted(need)] for at, need in enumerate(needs)})
    kept = data.draw(st.sets(st.sampled_from(range(len(needs))))) if needs else set()

    needed = set().union(*(needs[at] for at in kept))
    parts = set().union(*(spans[str(at)] for at in kept))
    for pack in ("0.pack", "1.pack", "2.pack"):
        assert sum(size for name, _, size in parts if name == pack) == sum(
            pieces[n].stored_bytes for n in needed if pieces[n].pack == pack
        )


def test_a_selection_returns_the_checkpoints_themselves() -> None:
    run = make_run("a", 3)

    assert select_evenly(run, 2) == (run.checkpoints[1], run.checkpoints[2])
    assert select_evenly(dataclasses.replace(run, checkpoints=()), 2) == ()


# --- the settings -----------------------------------------------------------------------------------------------------


def test_keep_is_all_or_a_number_however_it_is_written(tmp_path: Path) -> None:
    def policy(**environ: str) -> Policy:
        settings = load(tmp_path, environ)
        return Policy.from_settings(settings.keep, settings.budget_bytes)

    assert policy() == Policy(None, 0)
    assert policy().is_idle
    assert policy(RELIVE_KEEP="5", RELIVE_BUDGET_BYTES="1000") == Policy(5, 1000)
    (tmp_path / "relive.toml").write_text("keep = 5")
    assert policy() == Policy(5, 0)
    (tmp_path / "relive.toml").write_text('keep = "all"')
    assert policy() == Policy(None, 0)


@pytest.mark.parametrize(("keep", "budget"), [("none", 0), ("0", 0), ("-1", 0), ("2.5", 0), ("", 0), ("all", -1)])
def test_an_invalid_policy_is_refused_with_the_remedy(keep: str, budget: int) -> None:
    with pytest.raises(ReliveError, match="write"):
        Policy.from_settings(keep, budget)
