"""Narrows a parting down: replays iterations of which nothing is known in both runs, and hashes their memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relive.errors import ReliveError
from relive.hindsight.divergence.course import STATE, Course, Parting
from relive.hindsight.divergence.graph_difference import NUMBERS, LeafDifference
from relive.hindsight.divergence.run_trace import ENTRY, RankTrace, match_loops
from relive.hindsight.plan import CostModel, Draft
from relive.hindsight.replay_plan import Question, assemble_plan
from relive.hindsight.replay_session import ReplaySession
from relive.model import RunRecord
from relive.store import Home

Hashes = dict[int, dict[str, int]]  # by iteration and path


@dataclass(frozen=True, slots=True)
class _Gap:
    """The iterations of one loop to replay, of one rank."""

    rank: int
    loop: int
    iterations: range


def narrow_by_replay(
    home: Home, records: tuple[RunRecord, RunRecord], traces: tuple[RankTrace, RankTrace], course: Course
) -> None:
    """Replays both runs from the last moment that agreed up to the first that differs; changes the course in place."""
    parted, (one, other) = course.parted, traces
    if parted is None or parted.iteration < 0 or _is_exact(parted):
        return
    loops, _ = match_loops(one, other)
    there = next((number for number, mine in loops.items() if mine == parted.loop), None)
    first = parted.last_agreed_iteration if parted.last_agreed_iteration is not None else -1
    if there is None or parted.loop not in {moment.loop for moment in one.moments if moment.place == ENTRY}:
        course.notes.append("there is no loop whose iterations could be replayed in both runs")
        return
    wanted = range(min(first + 1, parted.iteration), parted.iteration + 1)
    hashes = []
    with ReplaySession(home) as session:
        for record, loop in zip(records, (parted.loop, there), strict=True):
            try:
                hashes.append(_replay(session, record, _Gap(one.rank, loop, wanted), course))
            except ReliveError as error:
                course.notes.append(f"{record.run[:8]} could not be replayed: {error}")
                return
    course.parted = narrowed(parted, one, hashes[0], hashes[1], wanted, course)


def _is_exact(parted: Parting) -> bool:
    return parted.what == STATE and not parted.between


def narrowed(parted: Parting, trace: RankTrace, one: Hashes, other: Hashes, wanted: range, course: Course) -> Parting:
    """Returns the parting at the first replayed iteration whose memory differs."""
    last: int | None = None
    for iteration in wanted:
        here, there = one.get(iteration), other.get(iteration)
        if here is None or there is None:
            course.notes.append(f"the replay did not come to {trace.where(parted.loop, iteration)} in both runs")
            return parted
        differing = [name for name in here if name in there and here[name] != there[name]]
        if differing:
            where = trace.where(parted.loop, iteration)
            known = [leaf.path for leaf in parted.leaves]
            differing.sort(key=lambda name: known.index(name) if name in known else len(known))
            leaves = tuple(LeafDifference(name, NUMBERS) for name in differing)
            agreed = trace.where(parted.loop, last) if last is not None else parted.last_agreed
            count = "one iteration" if len(wanted) == 1 else f"{len(wanted)} iterations"
            course.notes.append(f"found by replaying {count} of both runs")
            if iteration == parted.iteration and parted.what != STATE:
                return replace(parted, leaves=leaves, leaves_where=where, last_agreed=agreed, between=0)
            return Parting(
                where, STATE, differing[0], parted.loop, iteration, parted.order, leaves=leaves, leaves_where=where,
                last_agreed=agreed, last_agreed_iteration=last, between=0,
            )  # fmt: skip
        last = iteration
    course.notes.append("the memory of both runs agrees in the iterations that were replayed")
    return parted


def _replay(session: ReplaySession, record: RunRecord, gap: _Gap, course: Course) -> Hashes:
    """Replays iterations of a run with no statement added; returns the hashes of its memory at the end of each."""
    from relive.hindsight.execution import execute_plan
    from relive.hindsight.self_check import fit_every_loop

    if not record.version:
        raise ReliveError("it has no code version; record it with git installed")
    history = session.history(record)
    rank = next((one for one in history.ranks if one.number == gap.rank), history.ranks[0])
    main = rank.main_loops(history.profile).get(gap.loop)
    if main is None:
        raise ReliveError("its loop has no checkpoint to begin with; record it again with checkpoints")
    draft = Draft(
        record, history, fit_every_loop(session.home, record, history),
        selection={loop.number: list(gap.iterations) if loop.number == main else [] for loop in history.profile.mains},
        costs=CostModel.read(session.home).costs(record.run, is_shared=False, is_loaded=False),
    )  # fmt: skip
    plan = assemble_plan(Question((), has_hashes=True), [draft], workers=1)
    answer = execute_plan(session, plan, watch=lambda _tasks: None, updates_costs=False)
    if not answer.runs or answer.runs[0].missing:
        why = answer.runs[0].missing[0] if answer.runs else "; ".join(reason for _, reason in answer.refusals)
        raise ReliveError(why or "nothing was replayed")
    replayed = answer.runs[0]
    if replayed.mismatches or replayed.unrestored or replayed.has_restore_faults:
        course.notes.append(f"the replay of {record.run[:8]} did not reproduce all that was recorded: don't rely on it")
    return {
        iteration: hashes
        for (number, loop, iteration), hashes in replayed.memory.items()
        if number == rank.number and loop == gap.loop
    }
