"""Checks that a finished run reproduces itself: replays one iteration from a checkpoint, with no statement added."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from relive.hindsight.analysis import Patch, PatchCache, PatchFit
from relive.hindsight.execution import execute_plan
from relive.hindsight.plan import CostModel, Draft, Loop, RunHistory, RunProfile
from relive.hindsight.plan_inputs import script_shape
from relive.hindsight.replay_plan import Question, assemble_plan
from relive.hindsight.replay_session import ReplaySession
from relive.hindsight.run_results import RunAnswer
from relive.hindsight.self_check_result import FAILED, Check
from relive.model import RunRecord
from relive.store import Home
from relive.store.catalog import Index, find_run
from relive.store.versions import VersionFiles


def check_run(home: Home, run: str, *, allowed_s: float) -> Check:
    """Replays the first iteration that follows a complete checkpoint, unless that is predicted to take too long."""
    record = find_run(Index(home).runs(), run).record
    with ReplaySession(home, warm_s=0.0) as session:
        check = _check(session, record, allowed_s)
    check.write(home.run_folder(run))
    return check


def _check(session: ReplaySession, record: RunRecord, allowed_s: float) -> Check:
    history = session.history(record)
    profile = history.profile
    found = _first_restorable(profile)
    if found is None:
        return Check("no complete checkpoint")
    loop, iteration = found
    draft = Draft(
        record, history, fit_every_loop(session.home, record, history),
        selection={main.number: [iteration] if main is loop else [] for main in profile.mains},
        costs=CostModel.read(session.home).costs(record.run, is_shared=True, is_loaded=False),
    )  # fmt: skip
    plan = assemble_plan(Question(()), [draft], workers=1)
    if sum(case.plan.cost_s for case in plan.cases) > allowed_s:
        return Check("too long to try", loop.name, iteration)
    answer = execute_plan(session, plan, watch=lambda _tasks: None, updates_costs=False, falls_back=False, is_own=True)
    return _summarise(answer.runs[0] if answer.runs else RunAnswer(record.run), loop.name, iteration)


def _first_restorable(profile: RunProfile) -> tuple[Loop, int] | None:
    """The first iteration of a main loop that a complete checkpoint precedes."""
    for loop in profile.mains:
        for before in loop.iterations[:-1]:
            ends = [before.end, *(inner.end for inner in before.nested)]
            if any(end is not None and end.is_complete for end in ends):
                return loop, before.number + 1
    return None


def fit_every_loop(home: Home, record: RunRecord, history: RunHistory) -> PatchFit:
    """An empty patch that reaches into every loop, so that nothing of the iteration is skipped."""
    with VersionFiles(Path(str(record.code["repository"]))) as versions:
        files = versions.read(record.version)
    fit = PatchCache(home, (), instrumented=bool(record.code.get("instrumented"))).of_patch(
        Patch(), files, script_shape(record, history)
    )  # fmt: skip
    inside = history.profile.loop_paths
    return PatchFit(Patch(), replace(fit.reach, inside=inside, is_before=False, is_after=False), fit.leaving)


def _summarise(answer: RunAnswer, loop: str, iteration: int) -> Check:
    if answer.missing:
        return Check(FAILED, loop, iteration, answer.reproduced, answer.missing[0])
    first = ""
    if answer.mismatches:
        wrong = answer.mismatches[0]
        first = f"{wrong.name} at {wrong.where}: {wrong.then} then, {wrong.now} now"
    elif answer.unrestored:
        first = f"{answer.unrestored[0]} was not there to be restored"
    elif answer.differing:
        first = f"the state differs: {answer.differing[0]}"
    verdict = FAILED if first else "exact" if answer.reproduced or answer.proofs else "nothing to compare"
    return Check(verdict, loop, iteration, answer.reproduced, first)


if __name__ == "__main__":
    os.nice(10)  # whatever else runs now matters more
    check_run(Home(Path(sys.argv[1])), sys.argv[2], allowed_s=float(sys.argv[3]))
