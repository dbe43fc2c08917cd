"""Laws of aligned ranks: only what all of them have is used, and the plan is translated for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from relive.hindsight import Plan, Question
from relive.hindsight.analysis.depth import Reach
from relive.hindsight.plan.planner import plan_run
from relive.hindsight.plan.rank_alignment import RankMapping, align_ranks
from relive.hindsight.plan.run_profile import Iteration, Loop, RestorePoint, RunProfile
from relive.hindsight.plan.segments import Costs, RunPlan, Segment
from relive.hindsight.replay_plan import Case


def kept(name: str, *, size_bytes: int = 1000, **how: bool) -> RestorePoint:
    return RestorePoint(name, size_bytes, **{"is_complete": True, "is_normal_exit": True, **how})


def rank_profile(
    rank: int, *, iterations: int = 4, own: Sequence[int] = (), nested: Sequence[int] = (), extra: Sequence[str] = (),
    is_over: bool = True, end: RestorePoint | None = None,
) -> RunProfile:  # fmt: skip
    """A main loop with a nested one in each iteration; before that come loops of the names in `extra`."""
    loops: dict[int, Loop] = {}
    main = loops[2] = Loop(2, ("epoch",), 1, 0, 1.0, float(iterations), iterations, is_over, end)
    for iteration in range(iterations):
        inside = []
        for name in (*extra, "step"):
            number = len(loops) + 2
            state = kept(f"r{rank} step{iteration}") if name == "step" and iteration in nested else None
            loops[number] = Loop(number, ("epoch", name), 2, iteration, 1.0 + iteration, 0.4, 8, True, state)
            inside.append(loops[number])
        main.iterations.append(
            Iteration(iteration, 1.0, inside, kept(f"r{rank} iteration{iteration}") if iteration in own else None)
        )
    return RunProfile("run", loops, [main], [], 0.5, 20.0, max(loops))


def plan_of(common: RunProfile, *inside: tuple[str, ...], **how: Any) -> Any:
    reach = Reach(frozenset(inside), is_before=False, is_after=False, reasons=(), kept=frozenset())
    return plan_run(common, reach, **{"selection": {}, "parts": 1, "costs": Costs(), **how})


def test_only_states_that_all_ranks_kept_are_resumed_from() -> None:
    common, (first, second) = align_ranks([rank_profile(0, own=[0, 1, 2]), rank_profile(1, own=[0, 2, 3])])

    (segment,) = plan_of(common, ("epoch",), selection={2: [2, 3]}).segments

    def visits(mapping: RankMapping) -> list[tuple[int, str | None]]:
        return [(visit.iteration, visit.restore) for visit in mapping.translate(segment).visits]

    assert visits(first) == [(1, "r0 iteration0"), (2, None), (3, None)]
    assert visits(second) == [(1, "r1 iteration0"), (2, None), (3, None)]


def test_a_state_that_is_incomplete_on_one_rank_is_complete_on_none() -> None:
    ranks = [rank_profile(0, own=[0]), rank_profile(1, own=[0])]
    ranks[1].mains[0].iterations[0].end = kept("r1", size_bytes=5000, is_complete=False)

    common, _ = align_ranks(ranks)

    end = common.mains[0].iterations[0].end
    assert end is not None
    assert (end.is_complete, end.size_bytes) == (False, 5000)


def test_a_plan_is_translated_into_the_numbers_of_each_rank() -> None:
    """Rank 1 has a loop of its own in each iteration, so that all its numbers are others."""
    common, (first, second) = align_ranks(
        [rank_profile(0, nested=range(4)), rank_profile(1, nested=range(4), extra=["debug"])]
    )

    (segment,) = plan_of(common, ("epoch",)).segments

    assert {number: skip.manifest for number, skip in first.translate(segment).skips.items()} == {
        3: "r0 step0", 4: "r0 step1", 5: "r0 step2", 6: "r0 step3",
    }  # fmt: skip
    assert {number: skip.manifest for number, skip in second.translate(segment).skips.items()} == {
        4: "r1 step0", 6: "r1 step1", 8: "r1 step2", 10: "r1 step3",
    }  # fmt: skip


def test_a_loop_that_only_one_rank_entered_runs_even_in_a_warm_visit() -> None:
    """The other ranks may wait for what it does: skipping it on one rank alone would leave them waiting."""
    common, (first, second) = align_ranks(
        [rank_profile(0, nested=range(4), extra=["val"]), rank_profile(1, nested=range(4))]
    )

    (segment,) = plan_of(common, ("epoch", "step"), selection={2: [3]}).segments

    assert [(visit.iteration, visit.warm) for visit in segment.visits] == [(2, True), (3, False)]
    assert {common.loops[number].name for number in segment.skips} == {"step"}
    assert list(second.translate(segment).skips) == [5]
    assert list(first.translate(segment).skips) == [8]


def test_loops_of_one_name_that_differ_in_number_are_not_matched() -> None:
    common, _ = align_ranks([rank_profile(0, nested=[1], extra=["step"]), rank_profile(1, nested=[1])])

    assert not any(loop.is_shared for loop in common.loops.values() if loop.name == "step")
    assert all(loop.end is None for loop in common.loops.values())


def test_ranks_that_went_through_a_loop_unequally_often_run_from_the_start() -> None:
    common, _ = align_ranks([rank_profile(0, own=range(4)), rank_profile(1, iterations=3, own=range(3))])

    found = plan_of(common, ("epoch",))

    assert found.resume == "from the start"
    assert "different loops" in " ".join(found.reasons)
    (segment,) = found.segments
    assert (segment.visits, segment.stop) == ((), False)


def test_a_rank_that_was_killed_earlier_does_not_limit_the_others() -> None:
    ranks = [rank_profile(0, own=range(4), is_over=False), rank_profile(1, iterations=2, own=range(2), is_over=False)]
    common, (_, second) = align_ranks(ranks)

    (segment,) = plan_of(common, ("epoch",), selection={2: [3]}).segments

    assert [(visit.iteration, visit.restore) for visit in second.translate(segment).visits] == [
        (2, "r1 iteration1"),
        (3, None),
    ]


def test_a_main_loop_of_one_rank_alone_is_code_like_any_other() -> None:
    first = rank_profile(0, own=range(4))
    test = first.loops[50] = Loop(50, ("test",), 1, 0, 9.0, 1.0, 3, True, kept("test"))
    common, _ = align_ranks([replace(first, mains=[*first.mains, test]), rank_profile(1, own=range(4))])

    assert [loop.name for loop in common.mains] == ["epoch"]
    assert common.loops[50].end is None


def test_the_cost_of_a_plan_counts_the_workers_that_ranks_occupy_together() -> None:
    def cases(*widths: int) -> Any:
        segment = Segment((), {}, {}, stop=False, cost_s=10.0)
        own, costs = RunPlan("run", "outer", (segment,), ""), Costs(after_s=0.0)
        return tuple(Case(None, None, {}, costs, own, width) for width in widths)  # type: ignore[arg-type]

    def cost_s(workers: int, *widths: int) -> float:
        return Plan(Question(("x",)), workers, cases=cases(*widths)).cost_s

    assert [cost_s(4, 2, 2), cost_s(3, 2, 2), cost_s(2, 2, 1, 1), cost_s(2, 8, 8)] == [10, 20, 20, 20]
