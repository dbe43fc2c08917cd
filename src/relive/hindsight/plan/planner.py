"""The least work that yields the wanted values: which iterations to visit, from which checkpoint, on how many workers.

A plan is data. It knows nothing of how the source was made, and touches neither disk nor processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relive.hindsight.analysis import ANY, NOWHERE, PREFIX, Reach
from relive.hindsight.plan.run_profile import Iteration, Loop, Profile
from relive.hindsight.plan.segments import Costs, RunPlan, Segment, Skip, Visit, Wanted

FROM_START = "from the start"
_WORTH_PASSING = 0.5  # of what iterations take to run: another worker that only passes them saves enough


def plan(
    profile: Profile, reach: Reach, *, wanted: Wanted, parts: int, costs: Costs, leaving: Collection[str] = (),
    from_start: bool = False,
) -> RunPlan:  # fmt: skip
    """The plan of one run, in at most `parts` segments of like cost."""
    depth = reach.depth(profile.main_paths)
    if depth == NOWHERE:
        return RunPlan(profile.run, depth, (), "", ("no loop and no code that runs holds the statement",))
    return _Planner(profile, reach, wanted, costs, frozenset(leaving), from_start=from_start).plan(parts, depth)


@dataclass(frozen=True, slots=True)
class _Entry:
    """How a worker gets to the beginning of an iteration: by a restored state, or by the end of the one before."""

    cost_s: float
    restore: str | None = None
    warm: Visit | None = None
    passes: bool = False  # from the beginning of the loop, skipping what can be skipped


@dataclass(frozen=True, slots=True)
class _Stop:
    """One iteration on the way, and how a segment could begin with it."""

    visit: Visit
    entry: _Entry | None
    skips: Mapping[int, Skip]


class _Planner:
    """Works one run out."""

    def __init__(
        self, profile: Profile, reach: Reach, wanted: Wanted, costs: Costs, leaving: frozenset[str], *, from_start: bool
    ) -> None:
        self._profile = profile
        self._reach = reach
        self._wanted = wanted
        self._costs = costs
        self._leaving = leaving
        self._from_start = from_start
        self._reasons: list[str] = list(reach.reasons)
        self._jumped = self._skipped_nested = self._walked = False
        is_over = not profile.mains or profile.mains[-1].is_over
        self._goes_on = reach.is_after and is_over
        if self._goes_on and profile.reads_own and not from_start:
            self._from_start = True
            self._reasons.append("what comes after the training reads files that it wrote, so it runs from the start")
        if reach.is_after and not is_over:
            self._reasons.append("the run ended inside its main loop, so what comes after never ran")

    def plan(self, parts: int, depth: str) -> RunPlan:
        set_up = self._costs.set_up(self._profile.before_s)
        if not self._profile.mains:
            self._reasons.append(self._profile.why_whole)
            whole = self._segment([], is_last=True, set_up=set_up)
            return RunPlan(self._profile.run, depth, (replace(whole, stop=False),), FROM_START, tuple(self._reasons))
        if depth == PREFIX:
            before = self._segment([], is_last=False, set_up=set_up)
            return RunPlan(self._profile.run, depth, (before,), "", tuple(self._reasons))
        stops = [stop for loop in self._profile.mains for stop in self._stops(loop)]
        if not stops and not self._goes_on:
            return RunPlan(self._profile.run, depth, (), "", tuple(self._reasons))
        segments = tuple(self._segment(part, is_last=last, set_up=set_up) for part, last in self._parts(stops, parts))
        resume = ""
        if stops:
            resume = "resume" if self._jumped else "pseudoresume" if self._skipped_nested else FROM_START
        if resume == FROM_START and not self._from_start and self._walked:
            self._reasons.append("no usable checkpoint comes before what is wanted, so it runs from the start")
        return RunPlan(self._profile.run, depth, segments, resume, tuple(self._reasons))

    # --- one main loop ------------------------------------------------------------------------------------------

    def _stops(self, loop: Loop) -> list[_Stop]:
        """The iterations to run, in order, each with the cheapest way to it."""
        stops: list[_Stop] = []
        at = 0  # the state is that of the beginning of this iteration
        for target in sorted(self._targets(loop)):
            start, entry = self._best_start(loop, at, target)
            self._walked |= start < target
            way = [self._leading(loop, number) for number in range(start, target)] + [self._stop(loop, target)]
            stops += [*(self._entered(loop, way[0], entry) if entry is not None else way[:1]), *way[1:]]
            at = target + 1
        return stops

    def _targets(self, loop: Loop) -> set[int]:
        """The iterations that must be run: those asked for, and the last where the way out depends on it."""
        targets: set[int] = set()
        if self._reach.enters(loop.path) or self._is_kept(loop):
            wanted = self._wanted.get(loop.number)
            targets = {iteration for iteration in range(loop.iteration_count) if wanted is None or iteration in wanted}
        if self._needs_end(loop) and loop.iteration_count and not self._can_skip(loop):
            if loop.iteration_count - 1 not in targets:
                self._reasons.append(
                    f"the end of {'/'.join(loop.path)} can't be restored, so its last iteration is run"
                )
            targets.add(loop.iteration_count - 1)
        return targets

    def _needs_end(self, loop: Loop) -> bool:
        later = [other for other in self._profile.mains if other.number > loop.number]
        return self._goes_on or any(self._reach.enters(other.path) for other in later)

    def _is_kept(self, loop: Loop) -> bool:
        return loop.name in self._reach.kept or (ANY in self._reach.kept and self._reach.is_anywhere)

    def _can_skip(self, loop: Loop) -> bool:
        end = loop.end
        if end is None or not end.is_complete or self._from_start or self._is_kept(loop):
            return False
        # A loop that was left by `return`, an error, or `break` past its `else`, must leave by the same way again.
        if end.is_plain is not None:
            return end.is_plain
        return end.is_exhausted or loop.name not in self._leaving

    def _stop(self, loop: Loop, number: int) -> _Stop:
        visit = Visit(loop.number, number, self._run_s(loop, number), self._skipping_s(loop, number))
        return _Stop(visit, self._entry(loop, number), self._iteration_skips(loop, number))

    def _leading(self, loop: Loop, number: int) -> _Stop:
        """An iteration on the way to a wanted one. If it needs not run what holds the statement, it is only passed."""
        nested = [inner for inner in loop.iterations[number].nested if self._can_skip(inner)]
        if not any(self._reach.enters(inner.path) for inner in nested):
            return self._stop(loop, number)
        restoring = sum(self._costs.restore(inner.end) for inner in nested)
        visit = Visit(loop.number, number, self._lead_s(loop, number), restoring, passed=True)
        skips = {inner.number: Skip(inner.end.manifest) for inner in nested if inner.end is not None}
        return _Stop(visit, self._entry(loop, number), skips)

    def _lead_s(self, loop: Loop, number: int) -> float:
        iteration, pace = loop.iterations[number], self._costs.pace
        nested = (self._costs.restore(n.end) if self._can_skip(n) else pace * n.took_s for n in iteration.nested)
        return pace * iteration.own_s + sum(nested)

    def _entered(self, loop: Loop, stop: _Stop, entry: _Entry) -> list[_Stop]:
        """The same with the way in: a restore before it, a warm visit of the one before, or all before passed."""
        if entry.passes:
            return [*(self._leading(loop, number) for number in range(stop.visit.iteration)), stop]
        if entry.restore is not None:
            cost, restoring = stop.visit.cost_s + entry.cost_s, stop.visit.restoring_s + entry.cost_s
            return [replace(stop, visit=replace(stop.visit, restore=entry.restore, cost_s=cost, restoring_s=restoring))]
        if entry.warm is None:
            return [stop]
        return [_Stop(entry.warm, entry, self._warm_skips(loop, entry.warm.iteration)), stop]

    def _run_s(self, loop: Loop, number: int) -> float:
        iteration = loop.iterations[number]
        entered = sum(inner.took_s for inner in iteration.nested if not self._is_skipped(inner))
        return self._costs.pace * (iteration.own_s + entered) + self._skipping_s(loop, number)

    def _skipping_s(self, loop: Loop, number: int) -> float:
        return sum(
            self._costs.restore(inner.end) for inner in loop.iterations[number].nested if self._is_skipped(inner)
        )

    def _is_skipped(self, inner: Loop) -> bool:
        return not self._reach.enters(inner.path) and self._can_skip(inner)

    def _iteration_skips(self, loop: Loop, number: int) -> dict[int, Skip]:
        skipped = [inner for inner in loop.iterations[number].nested if self._is_skipped(inner)]
        return {inner.number: Skip(inner.end.manifest) for inner in skipped if inner.end is not None}

    def _best_start(self, loop: Loop, at: int, target: int) -> tuple[int, _Entry | None]:
        """From where to go to the beginning of `target`: from where we are, or from a checkpoint on the way."""
        walk_s = sum(self._lead_s(loop, number) for number in range(at, target))
        best: tuple[float, int, _Entry | None] = (walk_s, at, None)
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
        """How a worker that stands before the loop gets to the beginning of an iteration."""
        if number == 0:
            return _Entry(0.0)
        if self._from_start:
            return None
        before = loop.iterations[number - 1]
        options: list[_Entry] = []
        if before.end is not None and before.end.is_complete:
            options.append(_Entry(self._costs.restore(before.end), restore=before.end.manifest))
        last = self._last_kept(before)
        if last is not None:
            rest = sum(inner.took_s for inner in before.nested if inner.number > last.number or not inner.is_shared)
            restoring = self._costs.restore(last.end)
            cost = restoring + self._costs.pace * (before.own_s + rest)
            options.append(_Entry(cost, warm=Visit(loop.number, number - 1, cost, restoring, warm=True)))
        if not options:
            lead_s = sum(self._lead_s(loop, iteration) for iteration in range(number))
            if lead_s < _WORTH_PASSING * sum(self._run_s(loop, iteration) for iteration in range(number)):
                options.append(_Entry(lead_s, passes=True))
        return min(options, key=lambda option: option.cost_s, default=None)

    def _last_kept(self, iteration: Iteration) -> Loop | None:
        """The last nested loop of an iteration from whose end the rest of it can be run."""
        usable = [i for i in iteration.nested if self._can_skip(i) and i.end is not None and i.end.is_entrance]
        return usable[-1] if usable else None

    def _warm_skips(self, loop: Loop, number: int) -> dict[int, Skip]:
        """Up to the loop that restores, nothing counts; common loops before it are skipped with what comes later."""
        iteration = loop.iterations[number]
        last = self._last_kept(iteration)
        if last is None or last.end is None:
            return {}
        before = {i.number: Skip(last.end.manifest) for i in iteration.nested if i.number < last.number and i.is_shared}
        return before | {last.number: Skip(last.end.manifest, unmutes=True)}

    # --- segments -----------------------------------------------------------------------------------------------

    def _parts(self, stops: list[_Stop], parts: int) -> Iterable[tuple[list[_Stop], bool]]:
        """Cut the way into parts of like cost, where a worker can begin."""
        if not stops:
            return [([], True)]
        groups = self._grouped(stops)
        total = sum(cost for _, cost in groups)
        cuts: list[list[_Stop]] = [[]]
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

    def _grouped(self, stops: list[_Stop]) -> list[tuple[list[_Stop], float]]:
        """A visit that does not count, and what it leads to, stay together."""
        groups: list[list[_Stop]] = []
        for stop in stops:
            if groups and not groups[-1][-1].visit.counts:
                groups[-1].append(stop)
            else:
                groups.append([stop])
        return [(group, sum(stop.visit.cost_s for stop in group)) for group in groups]

    def _segment(self, part: list[_Stop], *, is_last: bool, set_up: float) -> Segment:
        stops = list(part)
        first = stops[0] if stops else None
        if first is not None and not first.visit.warm and first.visit.restore is None and first.entry is not None:
            stops[:1] = self._entered(self._profile.loops[first.visit.loop], first, first.entry)
        self._jumped |= any(stop.visit.warm or stop.visit.restore for stop in stops)
        self._skipped_nested |= any(stop.skips for stop in stops)
        goes_on = is_last and self._goes_on
        entered = {stop.visit.loop for stop in stops}
        skips = {key: skip for stop in stops for key, skip in stop.skips.items()}
        last = stops[-1].visit.loop if stops else 0
        others = [loop for loop in self._profile.mains if loop.number not in entered and self._can_skip(loop)]
        skips |= {
            loop.number: Skip(loop.end.manifest)
            for loop in others
            if loop.end is not None and (goes_on or loop.number < last)
        }
        ends = self._early_ends(stops, entered, last, goes_on=goes_on)
        ends |= {
            block.number: block.end.manifest for block in self._profile.blocks if block.end and self._is_skipped(block)
        }
        visits = tuple(stop.visit for stop in stops)
        around_s = self._around_s(entered, goes_on=goes_on)
        script_s = sum(visit.cost_s - visit.restoring_s for visit in visits) + around_s
        restoring_s = sum(visit.restoring_s for visit in visits)
        restoring_s += sum(self._costs.restore(loop.end) for loop in others if loop.number in skips)
        if skips or ends or any(visit.restore for visit in visits):
            restoring_s += self._costs.first_restore_s
        ending_s = self._costs.ending_s if goes_on else 0.0
        return Segment(visits, skips, ends, not goes_on, set_up + script_s + restoring_s + ending_s, script_s)

    def _early_ends(
        self, stops: Sequence[_Stop], entered: Collection[int], last: int, *, goes_on: bool
    ) -> dict[int, str]:
        """Main loops that are left before their last iteration, while the script goes on after them."""
        ends: dict[int, str] = {}
        for number in entered:
            loop = self._profile.loops[number]
            visited = max(stop.visit.iteration for stop in stops if stop.visit.loop == number)
            is_cut = visited < loop.iteration_count - 1
            if is_cut and loop.end is not None and (goes_on or number != last):
                ends[number] = loop.end.manifest
        return ends

    def _around_s(self, entered: Collection[int], *, goes_on: bool) -> float:
        """What lies between and after the main loops."""
        mains, total = list(self._profile.mains), 0.0
        for loop, after in zip(mains, [*mains, None][1:], strict=True):
            until = after.begun_s if after is not None else self._profile.took_s
            if goes_on or (entered and loop.number < max(entered)):
                total += max(0.0, until - loop.begun_s - loop.took_s)
        return self._costs.pace * total
