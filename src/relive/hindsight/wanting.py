"""Which iterations of which runs a question is about, and which of those have no answer yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relive.hindsight.course import Course
from relive.hindsight.depth import PREFIX, SUFFIX
from relive.hindsight.fitting import Fit
from relive.hindsight.planner import Wanted
from relive.hindsight.profile import Profile
from relive.query import Context, Query
from relive.store import Home, Parsed, RunEntry, to_text


@dataclass(frozen=True, slots=True)
class Asked:
    """The part of a question that chooses iterations."""

    names: tuple[str, ...]
    where: str | None
    again: bool  # also where there are values already


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What is known of one run before it is planned."""

    entry: RunEntry
    course: Course
    fit: Fit
    wanted: Wanted

    @property
    def recorded(self) -> Parsed:
        return self.course.recorded

    @property
    def profile(self) -> Profile:
        return self.course.profile


def wanted_of(home: Home, asked: Asked, drafts: Sequence[Draft]) -> list[Wanted | None]:
    """For each run the iterations that are asked for and lack an answer; None when nothing is."""
    chosen = _where(home, asked.where, drafts)
    return [_lacking(asked, draft, chosen.get(at)) for at, draft in enumerate(drafts)]


def _lacking(asked: Asked, draft: Draft, chosen: Wanted | None) -> Wanted | None:
    if asked.where and chosen is None:
        return None
    wanted: dict[int, Collection[int]] = dict(chosen or {})
    if asked.again:
        return wanted
    profile, reach = draft.profile, draft.fit.reach
    done, is_done_outside = _done(asked.names, draft)
    if reach.depth(profile.main_paths) in (PREFIX, SUFFIX):
        return None if is_done_outside else wanted
    left = False
    for loop in profile.mains:
        if reach.enters(loop.path):
            open_ = wanted.get(loop.number, range(loop.iterations))
            wanted[loop.number] = [turn for turn in open_ if turn not in done.get(loop.number, ())]
            left |= bool(wanted[loop.number])
    return wanted if left or (reach.is_after and not is_done_outside) else None


def _done(names: Sequence[str], draft: Draft) -> tuple[dict[int, set[int]], bool]:
    """The iterations of main loops in which each of the names has a value, recorded or replayed.

    What other ranks recorded is no answer, since the canonical one may lack it; but ranks are replayed together.
    """
    course = draft.course
    per_name: dict[str, set[tuple[int, int]]] = {name: set() for name in names}
    for journal in course.journals:
        rank = journal.journal.rank
        if rank and not journal.journal.replay:
            continue
        mains = course.ranks[rank].mains(course.profile)
        for code, name in enumerate(journal.names):
            if name in per_name:
                rows = journal.name == code
                pairs = set(zip(journal.loop[rows].tolist(), journal.iteration[rows].tolist(), strict=True))
                per_name[name] |= {_main_turn(journal, mains, *pair) for pair in pairs}
    done: dict[int, set[int]] = {}
    for loop, turn in set.intersection(*per_name.values()) if per_name else ():
        done.setdefault(loop, set()).add(turn)
    return done, 0 in done


def _where(home: Home, where: str | None, drafts: Sequence[Draft]) -> dict[int, Wanted]:
    if where is None:
        return {}
    contexts: list[Context] = []
    meant: list[tuple[int, int, int]] = []  # draft, main loop, iteration
    for at, draft in enumerate(drafts):
        for loop, context, turn in _contexts(draft.entry, draft.recorded, draft.profile):
            contexts.append(context)
            meant.append((at, loop, turn))
    chosen: dict[int, dict[int, set[int]]] = {}
    for position in Query(home).select(contexts, where):
        at, loop, turn = meant[position]
        turns = chosen.setdefault(at, {main.number: set() for main in drafts[at].profile.mains})
        turns.setdefault(loop, set()).add(turn)
    return {at: dict(turns) for at, turns in chosen.items()}


def _main_turn(journal: Parsed, mains: Mapping[int, int], loop: int, turn: int) -> tuple[int, int]:
    """The iteration of a main loop that a context lies in, as the plan numbers it; (0, 0) for what lies in none."""
    while loop in journal.loops:
        if loop in mains:
            return mains[loop], turn
        row = journal.loops[loop]
        loop, turn = row.parent, row.parent_iteration
    return 0, 0


def _contexts(entry: RunEntry, recorded: Parsed, profile: Profile) -> Iterator[tuple[int, Context, int]]:
    """Every iteration of the main loops and of the loops in them, as rows that a where clause can speak of."""
    run = entry.record.run
    inner = {loop.parent for loop in profile.loops.values()}
    for main in profile.mains:
        numbers = {main.number, *(loop.number for loop in profile.loops.values() if loop.parent == main.number)}
        for number in numbers:
            loop = profile.loops[number]
            for turn in range(loop.iterations):
                outer = turn if number == main.number else loop.parent_iteration
                if number == main.number and number in inner and any(n.iterations for n in main.turns[turn].nested):
                    continue  # its nested loops have rows, onto which it is joined
                yield main.number, _context(run, recorded, number, turn), outer
    if not profile.mains:  # nothing is left to begin from: whichever iterations are meant, all is run
        yield 0, Context(run, (), ()), 0
        for number, loop in profile.loops.items():
            yield from ((0, _context(run, recorded, number, turn), 0) for turn in range(loop.iterations))


def _context(run: str, recorded: Parsed, number: int, turn: int) -> Context:
    row, key = recorded.loops[number], number << 32 | turn
    own = recorded.known_items.integers.get(key, row.value(turn))
    items = dict(row.items)
    if key in recorded.known_items.others:
        items[row.name] = recorded.known_items.others[key]
    return Context(run, row.path, (*row.dims, own), to_text(items) if items else None)
