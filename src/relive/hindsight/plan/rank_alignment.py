"""What the ranks of one run have in common: the loops that all of them entered, and the states that all of them kept.

A plan is made once for all ranks, in the loop numbers of the canonical rank. Each rank numbers its loops by itself and
has checkpoints of its own, so a mapping translates the plan for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relive.hindsight.plan.run_profile import END, ITERATION, Iteration, Loop, RestorePoint, RunProfile
from relive.hindsight.plan.segments import Segment

RANKS_DIFFER = "its ranks went through different loops, so it runs from the start"


@dataclass(frozen=True, slots=True)
class RankMapping:
    """Maps the loops and checkpoints of the common plan to those of one rank."""

    loops: Mapping[int, int]
    manifests: Mapping[str, str]

    def translate(self, segment: Segment) -> Segment:
        """Returns the segment in the numbers and manifests of this rank."""
        visits = tuple(
            replace(visit, loop=self.loops[visit.loop], restore=visit.restore and self.manifests[visit.restore])
            for visit in segment.visits
        )
        skips = {
            self.loops[number]: replace(skip, manifest=self.manifests[skip.manifest])
            for number, skip in segment.skips.items()
        }
        ends = {self.loops[number]: self.manifests[manifest] for number, manifest in segment.ends.items()}
        return replace(segment, visits=visits, skips=skips, ends=ends)


def align_ranks(profiles: Sequence[RunProfile]) -> tuple[RunProfile, list[RankMapping]]:
    """Returns one profile for all ranks, and the mapping of each; the first profile is that of the canonical rank.

    A loop is common if every rank entered it: in the same iteration, and equally often under its name. A checkpoint is
    common if every rank took one at that moment; its manifest in the common profile is a symbolic name.
    """
    first = profiles[0]
    loops = [_match_loops(first, other) for other in profiles]
    shared = {number for number in first.loops if all(number in matched for matched in loops)}
    alignment = _Alignment(profiles, loops, [{} for _ in profiles])
    mains = [main for main in first.mains if main.number in shared and alignment.has_equal_counts(main.number)]
    others = [main for main in first.mains if main not in mains]
    if {main.path for main in others} & {main.path for main in mains} or not mains:
        mains = []
    merged = {
        number: replace(loop, iterations=[], end=alignment.end(number) if number in shared else None,
                        is_shared=number in shared)
        for number, loop in first.loops.items()
    }  # fmt: skip
    for main in mains:
        merged[main.number].iterations = [
            Iteration(iteration.number, iteration.took_s, [merged[inner.number] for inner in iteration.nested],
                      alignment.end_of_iteration(main.number, iteration.number))
            for iteration in main.iterations
        ]  # fmt: skip
    common = replace(
        first, loops=merged, mains=[merged[main.number] for main in mains],
        blocks=[merged[block.number] for block in first.blocks if merged[block.number].end is not None],
        has_framework_loop=any(profile.has_framework_loop for profile in profiles),
        reads_own_output=any(profile.reads_own_output for profile in profiles),
        why_from_start=RANKS_DIFFER if first.mains and not mains else first.why_from_start,
    )  # fmt: skip
    return common, [RankMapping(numbers, known) for numbers, known in zip(loops, alignment.manifests, strict=True)]


def _match_loops(first: RunProfile, other: RunProfile) -> dict[int, int]:
    """Maps loops of the canonical rank to those of another.

    Where one of the two entered a loop of some name more often, the entries can't be matched.
    """
    ours, theirs = _loops_by_place(first), _loops_by_place(other)
    found: dict[int, int] = {}
    for (parent, iteration, name), numbers in ours.items():  # a loop comes before those in it
        matched_parent = found.get(parent, -1) if parent in first.loops else parent
        matches = theirs.get((matched_parent, iteration, name), [])
        if len(matches) == len(numbers):
            found |= zip(numbers, matches, strict=True)
    return found


def _loops_by_place(profile: RunProfile) -> dict[tuple[int, int, str], list[int]]:
    """The loops entered in each iteration, by parent, iteration and name, in order."""
    found: dict[tuple[int, int, str], list[int]] = {}
    for number in sorted(profile.loops):
        loop = profile.loops[number]
        found.setdefault((loop.parent, loop.parent_iteration, loop.name), []).append(number)
    return found


@dataclass(frozen=True, slots=True)
class _Alignment:
    """The profiles of several ranks. `manifests` collects the manifests of the common checkpoints, for each rank."""

    profiles: Sequence[RunProfile]
    loops: Sequence[Mapping[int, int]]
    manifests: list[dict[str, str]]

    def has_equal_counts(self, number: int) -> bool:
        """Whether all ranks that reached the end of a main loop ran it equally often."""
        return len({loop.iteration_count for loop in self._on_each_rank(number) if loop.is_over}) <= 1

    def end(self, number: int) -> RestorePoint | None:
        return self._common_state(f"{number} {END}", [loop.end for loop in self._on_each_rank(number)])

    def end_of_iteration(self, number: int, iteration: int) -> RestorePoint | None:
        ends = [
            loop.iterations[iteration].end if iteration < len(loop.iterations) else None
            for loop in self._on_each_rank(number)
        ]
        return self._common_state(f"{number} {ITERATION} {iteration}", ends)

    def _on_each_rank(self, number: int) -> list[Loop]:
        return [profile.loops[matched[number]] for profile, matched in zip(self.profiles, self.loops, strict=True)]

    def _common_state(self, symbol: str, states: Sequence[RestorePoint | None]) -> RestorePoint | None:
        """Returns the state under a symbolic manifest if every rank has it."""
        present = [state for state in states if state is not None]
        if len(present) < len(states):
            return None
        for known, state in zip(self.manifests, present, strict=True):
            known[symbol] = state.manifest
        normal = {state.is_normal_exit for state in present}
        return RestorePoint(
            symbol, max(state.size_bytes for state in present), all(state.is_complete for state in present),
            all(state.is_exhausted for state in present),
            False if False in normal else None if None in normal else True,
        )  # fmt: skip
