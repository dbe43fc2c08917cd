"""What the ranks of one run have in common: loops that all of them entered, and states that all of them kept.

A plan is made once for all ranks, in the numbers of the canonical one. Ranks number their loops by themselves, and have
checkpoints of their own, so that each is told the plan in its own terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relive.hindsight.plan.run_profile import END, ITERATION, Iteration, Kept, Loop, Profile
from relive.hindsight.plan.segments import Segment

APART = "its ranks went through different loops, so it runs from the start"


@dataclass(frozen=True, slots=True)
class RankTerms:
    """What one rank calls the loops and checkpoints of a common plan."""

    loops: Mapping[int, int]
    manifests: Mapping[str, str]

    def own(self, segment: Segment) -> Segment:
        """The segment as this rank does it."""
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


def line_up(profiles: Sequence[Profile]) -> tuple[Profile, list[RankTerms]]:
    """The course of all ranks as one, the canonical rank's being the first, and what each calls its parts.

    A loop is common if every rank entered it: at the same place, as the same of those of its name. A checkpoint is
    common if every rank has one of that moment. Its manifest here is a word for it, the same on all ranks.
    """
    first = profiles[0]
    loops = [_numbers(first, other) for other in profiles]
    shared = {number for number in first.loops if all(number in own for own in loops)}
    lining = _Lining(profiles, loops, [{} for _ in profiles])
    mains = [main for main in first.mains if main.number in shared and lining.is_alike(main.number)]
    others = [main for main in first.mains if main not in mains]
    if {main.path for main in others} & {main.path for main in mains} or not mains:
        mains = []
    merged = {
        number: replace(loop, iterations=[], end=lining.end(number) if number in shared else None,
                        is_shared=number in shared)
        for number, loop in first.loops.items()
    }  # fmt: skip
    for main in mains:
        merged[main.number].iterations = [
            Iteration(iteration.number, iteration.took_s, [merged[inner.number] for inner in iteration.nested],
                 lining.end_of_iteration(main.number, iteration.number))
            for iteration in main.iterations
        ]  # fmt: skip
    together = replace(
        first, loops=merged, mains=[merged[main.number] for main in mains],
        blocks=[merged[block.number] for block in first.blocks if merged[block.number].end is not None],
        is_led=any(profile.is_led for profile in profiles), reads_own=any(profile.reads_own for profile in profiles),
        why_whole=APART if first.mains and not mains else first.why_whole,
    )  # fmt: skip
    return together, [RankTerms(own, known) for own, known in zip(loops, lining.manifests, strict=True)]


def _numbers(first: Profile, other: Profile) -> dict[int, int]:
    """For loops of the canonical rank, the numbers of another.

    Where one of them entered a loop of some name more often, nobody knows which of those belong together.
    """
    mine, theirs = _entries(first), _entries(other)
    found: dict[int, int] = {}
    for (parent, iteration, name), numbers in mine.items():  # a loop comes before those in it
        around = found.get(parent, -1) if parent in first.loops else parent
        own = theirs.get((around, iteration, name), [])
        if len(own) == len(numbers):
            found |= zip(numbers, own, strict=True)
    return found


def _entries(profile: Profile) -> dict[tuple[int, int, str], list[int]]:
    """The loops that were entered in each iteration, by name, in order."""
    found: dict[tuple[int, int, str], list[int]] = {}
    for number in sorted(profile.loops):
        loop = profile.loops[number]
        found.setdefault((loop.parent, loop.parent_iteration, loop.name), []).append(number)
    return found


@dataclass(frozen=True, slots=True)
class _Lining:
    """Several ranks side by side. `manifests` fills with what each of them calls the common checkpoints."""

    profiles: Sequence[Profile]
    loops: Sequence[Mapping[int, int]]
    manifests: list[dict[str, str]]

    def is_alike(self, number: int) -> bool:
        """Did the ranks go through a main loop equally often, where they came to its end?"""
        return len({loop.iteration_count for loop in self._own(number) if loop.is_over}) <= 1

    def end(self, number: int) -> Kept | None:
        return self._common(f"{number} {END}", [loop.end for loop in self._own(number)])

    def end_of_iteration(self, number: int, iteration: int) -> Kept | None:
        ends = [
            loop.iterations[iteration].end if iteration < len(loop.iterations) else None for loop in self._own(number)
        ]
        return self._common(f"{number} {ITERATION} {iteration}", ends)

    def _own(self, number: int) -> list[Loop]:
        return [profile.loops[own[number]] for profile, own in zip(self.profiles, self.loops, strict=True)]

    def _common(self, word: str, states: Sequence[Kept | None]) -> Kept | None:
        kept = [state for state in states if state is not None]
        if len(kept) < len(states):
            return None
        for known, state in zip(self.manifests, kept, strict=True):
            known[word] = state.manifest
        plain = {state.is_plain for state in kept}
        return Kept(
            word, max(state.size_bytes for state in kept), all(state.is_complete for state in kept),
            all(state.is_exhausted for state in kept), False if False in plain else None if None in plain else True,
        )  # fmt: skip
