"""Does a finished run reproduce itself? One iteration is replayed from a checkpoint, with no statement added."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from relive.hindsight.analysis import Patch, PatchCache, Reach
from relive.hindsight.check_result import FAILED, Check
from relive.hindsight.execution import RunAnswer, execute_plan
from relive.hindsight.plan import CostModel, Loop, Profile, plan, read_history
from relive.hindsight.question import Case, Plan, Question
from relive.hindsight.workers import entry_file
from relive.store import Home
from relive.store.catalog import Index, RunEntry, find_run
from relive.store.versions import VersionFiles


def check_run(home: Home, run: str, *, allowed_s: float) -> Check:
    """Replay the first iteration that a complete checkpoint leads to, unless that takes longer than allowed."""
    entry = find_run(Index(home).runs(), run)
    folder = home.replays / f"{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir(parents=True)
    try:
        checked = _checked(home, entry, folder, allowed_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    checked.write(home.run_folder(run))
    return checked


def _checked(home: Home, entry: RunEntry, folder: Path, allowed_s: float) -> Check:
    course = read_history(home, entry)
    profile = course.profile
    chosen = _chosen(profile)
    if chosen is None:
        return Check("no complete checkpoint")
    loop, iteration = chosen
    costs = CostModel.read(home).costs(entry.record.run, is_shared=True, is_loaded=False)
    reach, leaving = _everything(home, entry, profile)
    wanted = {main.number: [iteration] if main is loop else [] for main in profile.mains}
    planned = plan(profile, reach, wanted=wanted, parts=1, costs=costs, leaving=leaving)
    if planned.cost_s > allowed_s:
        return Check("too long to try", loop.name, iteration)
    case = Case(entry, course, Patch(), reach, planned, wanted, leaving, costs)
    found = execute_plan(home, Plan(Question(()), folder, 1, cases=[case]), watch=lambda _tasks: None, is_telling=False)
    return _told(found.runs[0], loop.name, iteration)


def _chosen(profile: Profile) -> tuple[Loop, int] | None:
    """The first iteration of a main loop that a complete state comes before."""
    for loop in profile.mains:
        for before in loop.iterations[:-1]:
            ends = [before.end, *(inner.end for inner in before.nested)]
            if any(end is not None and end.is_complete for end in ends):
                return loop, before.number + 1
    return None


def _everything(home: Home, entry: RunEntry, profile: Profile) -> tuple[Reach, frozenset[str]]:
    """As if a statement stood in every loop: nothing of the iteration is skipped."""
    code = entry.record.code
    with VersionFiles(Path(str(code["repository"]))) as versions:
        files = versions.read(entry.record.version)
    fit = PatchCache(home, (), instrumented=bool(code.get("instrumented"))).of_patch(
        Patch(), files, entry_file(entry.record), profile.main_paths, is_led=profile.is_led
    )
    inside = frozenset(loop.path for loop in profile.loops.values())
    return replace(fit.reach, inside=inside, is_before=False, is_after=False), fit.leaving


def _told(found: RunAnswer, loop: str, iteration: int) -> Check:
    if found.missing:
        return Check(FAILED, loop, iteration, found.reproduced, found.missing[0])
    first = ""
    if found.mismatches:
        wrong = found.mismatches[0]
        first = f"{wrong.name} at {wrong.where}: {wrong.then} then, {wrong.now} now"
    elif found.unrestored:
        first = f"{found.unrestored[0]} was not there to be restored"
    return Check(found.verdict, loop, iteration, found.reproduced, first)


if __name__ == "__main__":
    os.nice(10)  # whatever runs now matters more
    check_run(Home(Path(sys.argv[1])), sys.argv[2], allowed_s=float(sys.argv[3]))
