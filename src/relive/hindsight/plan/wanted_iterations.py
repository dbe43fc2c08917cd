"""Which iterations of which runs a question is about, and which of those have no answer yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relive.hindsight.analysis import PREFIX, SUFFIX
from relive.hindsight.plan.draft import Draft
from relive.hindsight.plan.run_profile import Profile
from relive.hindsight.plan.segments import Wanted
from relive.query import Context, Query
from relive.store import Home
from relive.store.journal import ParsedJournal, to_text


@dataclass(frozen=True, slots=True)
class WantedNames:
    """The part of a question that chooses iterations."""

    names: tuple[str, ...]
    where: str | None
    again: bool  # also where there are values already


def wanted_of(home: Home, asked: WantedNames, drafts: Sequence[Draft]) -> list[Wanted | None]:
    """For each run the iterations that are asked for and lack an answer; None when nothing is."""
    chosen = _where(home, asked.where, drafts)
    return [_lacking(asked, draft, chosen.get(at)) for at, draft in enumerate(drafts)]


def _lacking(asked: WantedNames, draft: Draft, chosen: Wanted | None) -> Wanted | None:
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
            open_ = wanted.get(loop.number, range(loop.iteration_count))
            wanted[loop.number] = [iteration for iteration in open_ if iteration not in done.get(loop.number, ())]
            left |= bool(wanted[loop.number])
    return wanted if left or (reach.is_after and not is_done_outside) else None


def _done(names: Sequence[str], draft: Draft) -> tuple[dict[int, set[int]], bool]:
    """The iterations of main loops in which each of the names has a value, recorded or replayed.

    What other ranks recorded is no answer, since the canonical one may lack it; but ranks are replayed together.
    """
    history = draft.history
    per_name: dict[str, set[tuple[int, int]]] = {name: set() for name in names}
    for journal in history.journals:
        rank = journal.journal.rank
        if rank and not journal.journal.replay:
            continue
        mains = history.ranks[rank].mains(history.profile)
        for code, name in enumerate(journal.names):
            if name in per_name:
                rows = journal.name == code
                pairs = set(zip(journal.loop[rows].tolist(), journal.iteration[rows].tolist(), strict=True))
                per_name[name] |= {_main_iteration(journal, mains, *pair) for pair in pairs}
    done: dict[int, set[int]] = {}
    for loop, iteration in set.intersection(*per_name.values()) if per_name else ():
        done.setdefault(loop, set()).add(iteration)
    return done, 0 in done


def _where(home: Home, where: str | None, drafts: Sequence[Draft]) -> dict[int, Wanted]:
    if where is None:
        return {}
    contexts: list[Context] = []
    meant: list[tuple[int, int, int]] = []  # draft, main loop, iteration
    for at, draft in enumerate(drafts):
        for loop, context, iteration in _contexts(draft.record.run, draft.recorded, draft.profile):
            contexts.append(context)
            meant.append((at, loop, iteration))
    chosen: dict[int, dict[int, set[int]]] = {}
    for position in Query(home).select(contexts, where):
        at, loop, iteration = meant[position]
        iterations = chosen.setdefault(at, {main.number: set() for main in drafts[at].profile.mains})
        iterations.setdefault(loop, set()).add(iteration)
    return {at: dict(iterations) for at, iterations in chosen.items()}


def _main_iteration(journal: ParsedJournal, mains: Mapping[int, int], loop: int, iteration: int) -> tuple[int, int]:
    """The iteration of a main loop that a context lies in, as the plan numbers it; (0, 0) for what lies in none."""
    while loop in journal.loops:
        if loop in mains:
            return mains[loop], iteration
        row = journal.loops[loop]
        loop, iteration = row.parent, row.parent_iteration
    return 0, 0


def _contexts(run: str, recorded: ParsedJournal, profile: Profile) -> Iterator[tuple[int, Context, int]]:
    """Every iteration of the main loops and of the loops in them, as rows that a where clause can speak of."""
    inner = {loop.parent for loop in profile.loops.values()}
    for main in profile.mains:
        numbers = {main.number, *(loop.number for loop in profile.loops.values() if loop.parent == main.number)}
        for number in numbers:
            loop = profile.loops[number]
            for iteration in range(loop.iteration_count):
                outer = iteration if number == main.number else loop.parent_iteration
                if (
                    number == main.number
                    and number in inner
                    and any(n.iteration_count for n in main.iterations[iteration].nested)
                ):
                    continue  # its nested loops have rows, onto which it is joined
                yield main.number, _context(run, recorded, number, iteration), outer
    if not profile.mains:  # nothing is left to begin from: whichever iterations are meant, all is run
        yield 0, Context(run, (), ()), 0
        for number, loop in profile.loops.items():
            yield from ((0, _context(run, recorded, number, iteration), 0) for iteration in range(loop.iteration_count))


def _context(run: str, recorded: ParsedJournal, number: int, iteration: int) -> Context:
    row, key = recorded.loops[number], number << 32 | iteration
    own = recorded.known_items.integers.get(key, row.value(iteration))
    items = dict(row.items)
    if key in recorded.known_items.others:
        items[row.name] = recorded.known_items.others[key]
    return Context(run, row.path, (*row.dims, own), to_text(items) if items else None)
