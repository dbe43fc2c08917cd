"""Finds the least work that yields the selected values: which iterations to visit, and from which checkpoints.

Pure: takes values and returns values, without disk or processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relive.hindsight.analysis import ANY_LOOP, NOWHERE, PREFIX, Reach
from relive.hindsight.plan.run_profile import Iteration, Loop, RunProfile
from relive.hindsight.plan.segments import Costs, RunPlan, Segment, Selection, Skip, Visit

FROM_START = "from the start"
UNREACHED = "no loop and no code that runs holds the statement"
_GRADIENTS = "the statement reads gradients, which a skipped loop does not produce"
_MAX_PASS_SHARE = 0.5  # of the time to run iterations: if passing them takes less, another worker is worth it


def plan_run(
    profile: RunProfile, reach: Reach, *, selection: Selection, parts: int, costs: Costs, leaving: Collection[str] = (),
    from_start: bool = False,
) -> RunPlan:  # fmt: skip
    """Plans one run, in at most `parts` segments of similar cost.

    `leaving` are the loops that may be left by `return`, or by `break` past an `else`.
    """
    depth = reach.depth(profile.main_paths)
    if depth == NOWHERE:
        return RunPlan(profile.run, depth, (), "", (*reach.reasons, UNREACHED))
    return _RunPlanner(profile, reach, selection, costs, frozenset(leaving), from_start=from_start).plan(parts, depth)


@dataclass(frozen=True, slots=True)
class _Entry:
    """How a worker reaches the beginning of an iteration: by a restored state, or by running the one before."""

    cost_s: float
    restore: str | None = None
    warm: Visit | None = None
    passes: bool = False  # by passing all iterations before it


@dataclass(frozen=True, slots=True)
class _PlannedVisit:
    """An iteration to run, and how a segment could begin with it; no entry: it can't."""

    visit: Visit
    entry: _Entry | None
    skips: Mapping[int, Skip]


class _RunPlanner:
    """Plans one run. Collects the reasons that users see."""

    def __init__(
        self, profile: RunProfile, reach: Reach, selection: Selection, costs: Costs, leaving: frozenset[str], *,
        from_start: bool,
    ) -> None:  # fmt: skip
        self._profile = profile
        self._reach = reach
        self._selection = selection
        self._costs = costs
        self._leaving = leaving
        self._from_start = from_start
        self._reasons: list[str] = list(reach.reasons)
        self._restores = self._skips_nested = self._runs_up = False
        is_over = not profile.mains or profile.mains[-1].is_over
        self._runs_to_end = reach.is_after and is_over
        if self._runs_to_end and profile.reads_own_output and not from_start:
            self._from_start = True
            self._reasons.append("what comes after the training reads files that it wrote, so it runs from the start")
        if reach.is_after and not is_over:
            self._reasons.append("the run ended inside its main loop, so what comes after never ran")

    def plan(self, parts: int, depth: str) -> RunPlan:
        set_up = self._costs.set_up(self._profile.before_s)
        if not self._profile.mains:
            self._reasons.append(self._profile.why_from_start)
            whole = self._segment([], is_last=True, set_up=set_up)
            return RunPlan(self._profile.run, depth, (replace(whole, stop=False),), FROM_START, tuple(self._reasons))
        if depth == PREFIX:
            before = self._segment([], is_last=False, set_up=set_up)
            return RunPlan(self._profile.run, depth, (before,), "", tuple(self._reasons))
        visits = [visit for loop in self._profile.mains for visit in self._visits(loop)]
        if not visits and not self._runs_to_end:
            return RunPlan(self._profile.run, depth, (), "", tuple(self._reasons))
        segments = tuple(self._segment(part, is_last=last, set_up=set_up) for part, last in self._split(visits, parts))
        resume = ""
        if visits:
            resume = "resume" if self._restores else "pseudoresume" if self._skips_nested else FROM_START
        if resume == FROM_START and not self._from_start and self._runs_up:
            self._reasons.append("no usable checkpoint comes before what is asked for, so it runs from the start")
        return RunPlan(self._profile.run, depth, segments, resume, tuple(self._reasons))

    # --- one main loop ------------------------------------------------------------------------------------------

    def _visits(self, loop: Loop) -> list[_PlannedVisit]:
        """The iterations to run, in order, each target with those that lead to it most cheaply."""
        visits: list[_PlannedVisit] = []
        at = 0  # the iteration at whose beginning the worker is
        for target in sorted(self._targets(loop)):
            start, entry = self._best_start(loop, at, target)
            self._runs_up |= start < target
            way = [self._lead(loop, number) for number in range(start, target)] + [self._visit(loop, target)]
            visits += [*(self._enter(loop, way[0], entry) if entry is not None else way[:1]), *way[1:]]
            at = target + 1
        return visits

    def _targets(self, loop: Loop) -> set[int]:
        """The iterations that must run: the selected ones, and the last one if the state after the loop needs it."""
        targets: set[int] = set()
        if self._reach.enters(loop.path) or self._is_unskippable(loop):
            chosen = self._selection.get(loop.number)
            targets = {number for number in range(loop.iteration_count) if chosen is None or number in chosen}
        if self._needs_end(loop) and loop.iteration_count and not self._can_skip_all(loop):
            if loop.iteration_count - 1 not in targets:
                name = "/".join(loop.path)
                why = _GRADIENTS if self._can_skip(loop) else f"the end of {name} can't be restored"
                self._reasons.append(f"{why}, so its last iteration is run")
            targets.add(loop.iteration_count - 1)
        return targets

    def _needs_end(self, loop: Loop) -> bool:
        later = [other for other in self._profile.mains if other.number > loop.number]
        return self._runs_to_end or any(self._reach.enters(other.path) for other in later)

    def _is_unskippable(self, loop: Loop) -> bool:
        return loop.name in self._reach.kept or (ANY_LOOP in self._reach.kept and self._reach.is_anywhere)

    def _can_skip(self, loop: Loop) -> bool:
        end = loop.end
        if end is None or not end.is_complete or self._from_start or self._is_unskippable(loop):
            return False
        # A loop that was left by `return`, an error, or `break` past its `else` must be left the same way again.
        if end.is_normal_exit is not None:
            return end.is_normal_exit
        return end.is_exhausted or loop.name not in self._leaving

    def _can_skip_all(self, loop: Loop) -> bool:
        """Whether a loop can be skipped just before the statement runs, too: what that reads is in its checkpoint."""
        return self._can_skip(loop) and not self._reach.reads_gradients

    def _visit(self, loop: Loop, number: int) -> _PlannedVisit:
        visit = Visit(loop.number, number, self._run_s(loop, number), self._skipping_s(loop, number))
        return _PlannedVisit(visit, self._entry(loop, number), self._iteration_skips(loop, number))

    def _lead(self, loop: Loop, number: int) -> _PlannedVisit:
        """An iteration on the way to a target. It is passed if the loops that hold the statement can be skipped."""
        nested = [inner for inner in loop.iterations[number].nested if self._can_skip(inner)]
        if not any(self._reach.enters(inner.path) for inner in nested):
            return self._visit(loop, number)
        restoring = sum(self._costs.restore(inner.end) for inner in nested)
        visit = Visit(loop.number, number, self._lead_s(loop, number), restoring, passed=True)
        skips = {inner.number: Skip(inner.end.manifest) for inner in nested if inner.end is not None}
        return _PlannedVisit(visit, self._entry(loop, number), skips)

    def _lead_s(self, loop: Loop, number: int) -> float:
        iteration, pace = loop.iterations[number], self._costs.pace
        nested = (self._costs.restore(n.end) if self._can_skip(n) else pace * n.took_s for n in iteration.nested)
        return pace * iteration.own_s + sum(nested)

    def _enter(self, loop: Loop, first: _PlannedVisit, entry: _Entry) -> list[_PlannedVisit]:
        """Puts the entry before a visit: a restore, a warm visit of the iteration before, or all before it passed."""
        if entry.passes:
            return [*(self._lead(loop, number) for number in range(first.visit.iteration)), first]
        if entry.restore is not None:
            cost, restoring = first.visit.cost_s + entry.cost_s, first.visit.restoring_s + entry.cost_s
            visit = replace(first.visit, restore=entry.restore, cost_s=cost, restoring_s=restoring)
            return [replace(first, visit=visit)]
        if entry.warm is None:
            return [first]
        return [_PlannedVisit(entry.warm, entry, self._warm_skips(loop, entry.warm.iteration)), first]

    def _run_s(self, loop: Loop, number: int) -> float:
        iteration = loop.iterations[number]
        entered = sum(inner.took_s for inner in iteration.nested if not self._is_skipped(inner))
        return self._costs.pace * (iteration.own_s + entered) + self._skipping_s(loop, number)

    def _skipping_s(self, loop: Loop, number: int) -> float:
        return sum(
            self._costs.restore(inner.end) for inner in loop.iterations[number].nested if self._is_skipped(inner)
        )

    def _is_skipped(self, inner: Loop) -> bool:
        return not self._reach.enters(inner.path) and self._can_skip_all(inner)

    def _iteration_skips(self, loop: Loop, number: int) -> dict[int, Skip]:
        skipped = [inner for inner in loop.iterations[number].nested if self._is_skipped(inner)]
        return {inner.number: Skip(inner.end.manifest) for inner in skipped if inner.end is not None}

    def _best_start(self, loop: Loop, at: int, target: int) -> tuple[int, _Entry | None]:
        """Where to start towards `target`: at the current iteration, or at the cheapest checkpoint after it."""
        lead_s = sum(self._lead_s(loop, number) for number in range(at, target))
        best: tuple[float, int, _Entry | None] = (lead_s, at, None)
        rest_s = 0.0
        for start in range(target, at, -1):
            entry = self._entry(loop, start)
            if entry is not None and entry.cost_s + rest_s < best[0]:
                best = (entry.cost_s + rest_s, start, entry)
            rest_s += self._lead_s(loop, start - 1)
            if rest_s >= best[0]:
                break
        return best[1], best[2]

    def _entry(self, loop: Loop, number: int) -> _Entry | None:
        """The cheapest way from the beginning of the loop to the beginning of an iteration; None: there is none."""
        if number == 0:
            return _Entry(0.0)
        if self._from_start:
            return None
        before = loop.iterations[number - 1]
        options: list[_Entry] = []
        if before.end is not None and before.end.is_complete:
            options.append(_Entry(self._costs.restore(before.end), restore=before.end.manifest))
        # The rest of the iteration before runs, too: a statement there would read gradients of the skipped loop.
        is_blind = self._reach.reads_gradients and loop.path in self._reach.inside
        last = self._last_resumable(before)
        if last is not None and not is_blind:
            rest = sum(inner.took_s for inner in before.nested if inner.number > last.number or not inner.is_shared)
            restoring = self._costs.restore(last.end)
            cost = restoring + self._costs.pace * (before.own_s + rest)
            options.append(_Entry(cost, warm=Visit(loop.number, number - 1, cost, restoring, warm=True)))
        if not options:
            lead_s = sum(self._lead_s(loop, iteration) for iteration in range(number))
            if lead_s < _MAX_PASS_SHARE * sum(self._run_s(loop, iteration) for iteration in range(number)):
                options.append(_Entry(lead_s, passes=True))
        return min(options, key=lambda option: option.cost_s, default=None)

    def _last_resumable(self, iteration: Iteration) -> Loop | None:
        """The last nested loop of an iteration whose end can be restored to run the rest of it."""
        usable = [i for i in iteration.nested if self._can_skip(i) and i.end is not None and i.end.can_resume]
        return usable[-1] if usable else None

    def _warm_skips(self, loop: Loop, number: int) -> dict[int, Skip]:
        """Skips the loop that is restored, and the common loops before it, which get the same state."""
        iteration = loop.iterations[number]
        last = self._last_resumable(iteration)
        if last is None or last.end is None:
            return {}
        before = {i.number: Skip(last.end.manifest) for i in iteration.nested if i.number < last.number and i.is_shared}
        return before | {last.number: Skip(last.end.manifest, unmutes=True)}

    # --- segments -----------------------------------------------------------------------------------------------

    def _split(self, visits: list[_PlannedVisit], parts: int) -> Iterable[tuple[list[_PlannedVisit], bool]]:
        """Cuts the visits into parts of similar cost, where a worker can begin; says of each whether it is the last."""
        if not visits:
            return [([], True)]
        groups = self._group(visits)
        total = sum(cost for _, cost in groups)
        cuts: list[list[_PlannedVisit]] = [[]]
        done = 0.0
        for group, cost in groups:
            share = total * len(cuts) / parts
            can_begin = group[0].entry is not None
            if cuts[-1] and len(cuts) < parts and can_begin and done + cost / 2 > share:
                cuts.append([])
            cuts[-1] += group
            done += cost
        last = len(cuts) - 1
        return [(cut, at == last) for at, cut in enumerate(cuts)]

    def _group(self, visits: list[_PlannedVisit]) -> list[tuple[list[_PlannedVisit], float]]:
        """Keeps visits that do not count together with the one they lead to; returns each group with its cost."""
        groups: list[list[_PlannedVisit]] = []
        for planned in visits:
            if groups and not groups[-1][-1].visit.counts:
                groups[-1].append(planned)
            else:
                groups.append([planned])
        return [(group, sum(planned.visit.cost_s for planned in group)) for group in groups]

    def _segment(self, part: list[_PlannedVisit], *, is_last: bool, set_up: float) -> Segment:
        planned = self._with_entry(part)
        self._restores |= any(one.visit.warm or one.visit.restore for one in planned)
        self._skips_nested |= any(one.skips for one in planned)
        runs_to_end = is_last and self._runs_to_end
        entered = {one.visit.loop for one in planned}
        skips = {number: skip for one in planned for number, skip in one.skips.items()}
        last = planned[-1].visit.loop if planned else 0
        others = [loop for loop in self._profile.mains if loop.number not in entered and self._can_skip(loop)]
        skips |= {
            loop.number: Skip(loop.end.manifest)
            for loop in others
            if loop.end is not None and (runs_to_end or loop.number < last)
        }
        ends = self._early_ends(planned, entered, last, runs_to_end=runs_to_end)
        ends |= {
            block.number: block.end.manifest for block in self._profile.blocks if block.end and self._is_skipped(block)
        }
        visits = tuple(one.visit for one in planned)
        between_s = self._between_s(entered, runs_to_end=runs_to_end)
        script_s = sum(visit.cost_s - visit.restoring_s for visit in visits) + between_s
        restoring_s = sum(visit.restoring_s for visit in visits)
        restoring_s += sum(self._costs.restore(loop.end) for loop in others if loop.number in skips)
        if skips or ends or any(visit.restore for visit in visits):
            restoring_s += self._costs.first_restore_s
        ending_s = self._costs.ending_s if runs_to_end else 0.0
        return Segment(visits, skips, ends, not runs_to_end, set_up + script_s + restoring_s + ending_s, script_s)

    def _with_entry(self, part: list[_PlannedVisit]) -> list[_PlannedVisit]:
        """The visits of a segment, with the way to the first one unless it has it already."""
        if not part:
            return []
        first = part[0]
        if first.visit.warm or first.visit.restore is not None or first.entry is None:
            return part
        return [*self._enter(self._profile.loops[first.visit.loop], first, first.entry), *part[1:]]

    def _early_ends(
        self, planned: Sequence[_PlannedVisit], entered: Collection[int], last: int, *, runs_to_end: bool
    ) -> dict[int, str]:
        """Main loops that are left before their last iteration, although the script continues after them."""
        ends: dict[int, str] = {}
        for number in entered:
            loop = self._profile.loops[number]
            visited = max(one.visit.iteration for one in planned if one.visit.loop == number)
            is_cut = visited < loop.iteration_count - 1
            if is_cut and loop.end is not None and (runs_to_end or number != last):
                ends[number] = loop.end.manifest
        return ends

    def _between_s(self, entered: Collection[int], *, runs_to_end: bool) -> float:
        """The time between and after the main loops."""
        mains, total = list(self._profile.mains), 0.0
        for loop, after in zip(mains, [*mains, None][1:], strict=True):
            until = after.begun_s if after is not None else self._profile.took_s
            if runs_to_end or (entered and loop.number < max(entered)):
                total += max(0.0, until - loop.begun_s - loop.took_s)
        return self._costs.pace * total
