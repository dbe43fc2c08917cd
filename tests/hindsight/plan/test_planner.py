"""Laws of plans: the least work that yields the selected values, from complete checkpoints, cut evenly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from relive.hindsight.analysis.depth import INNER, NOWHERE, OUTER, PREFIX, SUFFIX, Reach
from relive.hindsight.plan.planner import plan_run
from relive.hindsight.plan.run_profile import Iteration, Loop, RestorePoint, RunProfile
from relive.hindsight.plan.segments import Costs, RunPlan

COSTS = Costs(worker_s=1.0, bytes_per_s=1e9, restore_s=0.01)
EPOCH, STEP = ("epoch",), ("epoch", "step")


def kept(name: str, **how: bool) -> RestorePoint:
    return RestorePoint(name, 1000, **{"is_complete": True, "is_normal_exit": True, **how})


def epochs(
    count: int, *, own: Sequence[int] = (), nested: Sequence[int] = (), end: RestorePoint | None = None,
    number: int = 2, name: str = "epoch", begun_s: float = 1.0, is_over: bool = True,
) -> list[Loop]:  # fmt: skip
    """A main loop; iterations take a second, a nested loop 0.9 s of it; checkpoints at the ends of both."""
    main = Loop(number, (name,), 1, 0, begun_s, float(count), count, is_over, end)
    inner = [
        Loop(number + 1 + iteration, (name, "step"), number, iteration, begun_s + iteration, 0.9, 10, True,
             kept(f"step{iteration}") if iteration in nested else None)
        for iteration in range(count)
    ]  # fmt: skip
    for iteration in range(count):
        state = kept(f"iteration{iteration}") if iteration in own else None
        main.iterations.append(Iteration(iteration, 1.0, [inner[iteration]], state))
    return [main, *inner]


def profile(*loops: Loop, mains: Sequence[int] = (2,), blocks: Sequence[Loop] = (), took_s: float = 20.0) -> RunProfile:
    known = {loop.number: loop for loop in loops}
    return RunProfile("run", known, [known[number] for number in mains if number in known], blocks, 0.5, took_s, 99)


def reach(*inside: tuple[str, ...], after: bool = False, before: bool = False, kept: Sequence[str] = ()) -> Reach:
    return Reach(frozenset(inside), before, after, (), frozenset(kept))


def visited(found: RunPlan) -> list[list[tuple[int, str | None]]]:
    """Per segment the iterations, and what is restored before each; warm ones are negative."""
    return [
        [(-visit.iteration if visit.warm else visit.iteration, visit.restore) for visit in segment.visits]
        for segment in found.segments
    ]


def planned(profiled: RunProfile, where: Reach, *, parts: int = 1, **how: object) -> RunPlan:
    return plan_run(profiled, where, **{"selection": {}, "parts": parts, "costs": COSTS, **how})  # type: ignore[arg-type]


EVERY = profile(*epochs(10, own=range(10), nested=range(10), end=kept("end")))


def test_a_statement_before_the_loop_stops_there() -> None:
    found = planned(EVERY, reach(before=True))

    (segment,) = found.segments
    assert (found.depth, segment.visits, segment.skips, segment.stop) == (PREFIX, (), {}, True)


def test_what_reads_files_of_its_own_training_runs_from_the_start() -> None:
    profiled = replace(EVERY, reads_own_output=True)
    found = planned(profiled, reach(after=True))
    inside = planned(profiled, reach(("epoch",)), selection={2: [7]})

    assert [visit.iteration for visit in found.segments[0].visits] == list(range(10))
    assert "reads files" in found.reasons[0]
    assert visited(inside) == [[(7, "iteration6")]]  # nothing comes after


def test_a_statement_after_the_loop_never_iterates() -> None:
    found = planned(EVERY, reach(after=True))

    (segment,) = found.segments
    assert (found.depth, segment.visits, segment.stop) == (SUFFIX, (), False)
    assert segment.skips[2].manifest == "end"


def test_a_statement_in_an_iteration_skips_its_nested_loops() -> None:
    found = planned(EVERY, reach(EPOCH))

    (segment,) = found.segments
    assert found.depth == OUTER
    assert [visit.iteration for visit in segment.visits] == list(range(10))
    assert {skip.manifest for skip in segment.skips.values()} == {f"step{iteration}" for iteration in range(10)}
    assert segment.stop


def test_a_statement_in_a_nested_loop_runs_it() -> None:
    found = planned(EVERY, reach(STEP))

    assert (found.depth, found.segments[0].skips) == (INNER, {})


def test_only_selected_iterations_are_visited_each_from_the_state_before_it() -> None:
    found = planned(EVERY, reach(STEP), selection={2: [3, 7]})

    assert visited(found) == [[(3, "iteration2"), (7, "iteration6")]]
    assert found.resume == "resume"


def test_the_first_iteration_needs_no_state() -> None:
    assert visited(planned(EVERY, reach(STEP), selection={2: [0]})) == [[(0, None)]]


def test_without_the_state_right_before_it_an_earlier_one_is_restored() -> None:
    profiled = profile(*epochs(10, own=[1], end=kept("end")))

    assert visited(planned(profiled, reach(STEP), selection={2: [4]})) == [[(2, "iteration1"), (3, None), (4, None)]]


def test_without_the_end_of_an_iteration_its_nested_loop_leads_there() -> None:
    profiled = profile(*epochs(10, nested=range(10), end=kept("end")))

    found = planned(profiled, reach(STEP), selection={2: [5]})

    assert visited(found) == [[(-4, None), (5, None)]]
    assert found.segments[0].skips[2 + 1 + 4].unmutes


def test_a_statement_on_gradients_runs_the_loops_that_produce_them_and_skips_those_before() -> None:
    profiled = profile(*epochs(10, nested=range(10), end=kept("end")))
    inside = planned(profiled, replace(reach(STEP), reads_gradients=True), selection={2: [5]})
    beside = planned(EVERY, replace(reach(EPOCH), reads_gradients=True), selection={2: [5]})
    after = planned(profiled, replace(reach(after=True), reads_gradients=True))

    assert visited(inside) == [[(-4, None), (5, None)]]
    assert (visited(beside), beside.segments[0].skips) == ([[(5, "iteration4")]], {})
    assert visited(after) == [[(-8, None), (9, None)]]
    assert "gradients" in after.reasons[0]


def test_a_statement_on_gradients_after_a_nested_loop_does_not_run_in_an_iteration_that_skips_it() -> None:
    profiled = profile(*epochs(10, nested=range(10), end=kept("end")))

    found = planned(profiled, replace(reach(EPOCH), reads_gradients=True), selection={2: [5]})

    assert visited(found) == [[(number, None) for number in range(6)]]


@pytest.mark.parametrize("broken", [{"is_complete": False}, {"is_normal_exit": False}])
def test_a_nested_loop_that_is_incomplete_or_was_left_abnormally_is_run(broken: dict[str, bool]) -> None:
    main, *inner = epochs(4, own=range(4), end=kept("end"))
    for loop in inner:
        loop.end = kept("step", **broken)

    assert planned(profile(main, *inner), reach(EPOCH)).segments[0].skips == {}


def test_a_partial_state_is_not_resumed_from() -> None:
    main, *inner = epochs(4)
    for iteration in main.iterations:
        iteration.end = kept("iteration", is_complete=False)

    found = planned(profile(main, *inner), reach(STEP), selection={2: [3]})

    assert visited(found) == [[(0, None), (1, None), (2, None), (3, None)]]
    assert found.resume == "from the start"
    assert any("no usable checkpoint" in reason for reason in found.reasons)


def test_older_records_without_the_kind_of_exit_rely_on_the_source() -> None:
    end = kept("end", is_normal_exit=None, is_exhausted=False)  # type: ignore[arg-type]
    profiled = profile(*epochs(3, own=range(3), end=end))

    assert planned(profiled, reach(after=True)).segments[0].visits == ()
    assert [v.iteration for v in planned(profiled, reach(after=True), leaving={"epoch"}).segments[0].visits] == [2]


def test_an_end_that_can_not_be_restored_is_reached_by_the_last_iteration() -> None:
    profiled = profile(*epochs(5, own=range(5)))

    found = planned(profiled, reach(after=True))

    assert visited(found) == [[(4, "iteration3")]]
    assert not found.segments[0].stop
    assert any("last iteration is run" in reason for reason in found.reasons)


def test_after_some_iterations_the_end_is_restored_when_the_script_continues() -> None:
    found = planned(EVERY, reach(STEP, after=True), selection={2: [3]})

    assert found.segments[0].ends == {2: "end"}
    assert not found.segments[0].stop


def test_from_the_start_no_state_is_trusted() -> None:
    found = planned(EVERY, reach(EPOCH), selection={2: [2]}, from_start=True)

    assert visited(found) == [[(0, None), (1, None), (2, None)]]
    assert found.segments[0].skips == {}


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 50])
def test_segments_share_all_iterations_without_overlap(parts: int) -> None:
    found = planned(EVERY, reach(STEP), parts=parts)

    done = [visit.iteration for segment in found.segments for visit in segment.visits if not visit.warm]
    assert done == list(range(10))
    assert len(found.segments) == min(parts, 10)


def test_every_segment_but_the_last_stops_and_begins_from_a_state() -> None:
    found = planned(EVERY, reach(STEP, after=True), parts=3)

    assert [segment.stop for segment in found.segments] == [True, True, False]
    assert [segment.visits[0].restore is not None for segment in found.segments] == [False, True, True]


def test_a_segment_cut_where_nested_loops_lead_begins_with_a_warm_visit() -> None:
    profiled = profile(*epochs(10, nested=range(10), end=kept("end")))

    found = planned(profiled, reach(STEP), parts=2)

    first, second = found.segments
    assert not first.visits[0].warm
    assert second.visits[0].warm
    assert second.visits[1].iteration == second.visits[0].iteration + 1
    assert found.iterations == 10


def around_lost(**how: bool) -> RunProfile:
    """Nested loops can be skipped but not resumed from: the main loop consumes something that can't be checkpointed."""
    loops = epochs(10, nested=range(10), end=kept("end", is_complete=False))
    for loop in loops[1:]:
        loop.end = replace(loop.end, can_resume=False) if loop.end is not None else None
    return profile(*loops)


def test_no_segment_begins_where_the_outer_loop_can_not_be_resumed() -> None:
    found = planned(around_lost(), reach(EPOCH), selection={2: [7]})

    assert visited(found) == [[(iteration, None) for iteration in range(8)]]
    assert {skip.manifest for skip in found.segments[0].skips.values()} == {
        f"step{iteration}" for iteration in range(8)
    }
    assert found.resume == "pseudoresume"


def test_on_the_way_to_a_selected_iteration_also_loops_that_hold_the_statement_are_skipped() -> None:
    found = planned(around_lost(), reach(STEP), selection={2: [7]})

    (segment,) = found.segments
    assert [visit.passed for visit in segment.visits] == [True] * 7 + [False]
    assert {skip.manifest for skip in segment.skips.values()} == {f"step{iteration}" for iteration in range(7)}
    assert (found.resume, segment.iterations) == ("pseudoresume", 1)


def test_a_second_worker_passes_what_the_first_one_runs() -> None:
    first, second = planned(around_lost(), reach(STEP), parts=2).segments

    assert [visit.iteration for visit in first.visits if visit.counts] == list(range(5))
    assert [visit.iteration for visit in second.visits if visit.counts] == list(range(5, 10))
    assert [visit.iteration for visit in second.visits if visit.passed] == list(range(5))
    assert len(second.skips) == 5


def test_without_states_there_is_one_segment() -> None:
    assert len(planned(profile(*epochs(6)), reach(STEP), parts=4).segments) == 1


def test_a_run_without_checkpoints_runs_from_the_start_to_its_end() -> None:
    found = planned(profile(mains=()), reach(EPOCH, before=True))

    (segment,) = found.segments
    assert (segment.visits, segment.skips, segment.stop) == ((), {}, False)
    assert found.resume == "from the start"


def test_an_empty_main_loop_has_no_segments() -> None:
    profiled = profile(*epochs(0, end=kept("end")))

    assert planned(profiled, reach(EPOCH)).segments == ()
    assert planned(profiled, reach(after=True)).segments[0].visits == ()


def test_what_comes_after_a_killed_run_never_ran() -> None:
    profiled = profile(*epochs(5, own=range(5), is_over=False))

    found = planned(profiled, reach(after=True))

    assert found.segments == ()
    assert any("never ran" in reason for reason in found.reasons)


def test_a_statement_nowhere_needs_no_work() -> None:
    assert planned(EVERY, reach()).segments == ()
    assert planned(EVERY, reach()).depth == NOWHERE


def two(**how: object) -> RunProfile:
    first = epochs(4, own=range(4), nested=range(4), end=kept("end1"))
    second = epochs(3, own=range(3), nested=range(3), end=kept("end2"), number=20, name="tune", begun_s=8.0)
    return replace(profile(*first, *second, mains=(2, 20)), **how)  # type: ignore[arg-type]


def test_a_main_loop_before_the_selected_one_is_skipped() -> None:
    found = planned(two(), reach(("tune", "step")))

    (segment,) = found.segments
    assert {visit.loop for visit in segment.visits} == {20}
    assert segment.skips[2].manifest == "end1"


def test_a_main_loop_after_the_selected_one_is_not_reached() -> None:
    found = planned(two(), reach(EPOCH))

    (segment,) = found.segments
    assert segment.stop
    assert 20 not in segment.skips


def test_both_main_loops_are_skipped_for_what_follows_them() -> None:
    (segment,) = planned(two(), reach(after=True)).segments

    assert {number: skip.manifest for number, skip in segment.skips.items()} == {2: "end1", 20: "end2"}


def test_a_skipped_block_has_its_end() -> None:
    block = Loop(50, ("warmup",), 1, 0, 0.1, 0.5, 1, True, kept("block"))
    profiled = replace(EVERY, loops={**EVERY.loops, 50: block}, blocks=[block])

    assert planned(profiled, reach(after=True)).segments[0].ends == {50: "block"}
    assert planned(profiled, replace(reach(before=True), elsewhere=frozenset({("warmup",)}))).segments[0].ends == {}


def test_a_generator_around_a_loop_keeps_it_from_being_skipped() -> None:
    found = planned(EVERY, reach(EPOCH, kept=["step"]))

    assert found.segments[0].skips == {}


def test_skipping_costs_a_restore_instead_of_the_loop() -> None:
    outer, inner = planned(EVERY, reach(EPOCH)), planned(EVERY, reach(STEP))

    assert outer.cost_s < inner.cost_s - 8
    assert planned(EVERY, reach(STEP), selection={2: [3]}).cost_s < inner.cost_s / 3
