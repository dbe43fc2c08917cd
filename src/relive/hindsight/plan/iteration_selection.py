"""Selects the iterations of each run that a question is about and that have no value yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relive.hindsight.analysis import PREFIX, SUFFIX
from relive.hindsight.plan.draft import Draft
from relive.hindsight.plan.run_profile import RunProfile
from relive.hindsight.plan.segments import Selection
from relive.model import Verdict
from relive.query import IterationContext, QueryEngine
from relive.store import Home
from relive.store.catalog import has_happened, read_verdicts
from relive.store.journal import ParsedJournal, to_json


@dataclass(frozen=True, slots=True)
class SelectionTerms:
    """The part of a question that selects iterations."""

    names: tuple[str, ...]
    where: str | None
    again: bool  # also where there are values already
    beyond: bool = False  # so is what runs that ended early never came to, wherever they have values


def select_iterations(home: Home, terms: SelectionTerms, drafts: Sequence[Draft]) -> list[Selection | None]:
    """Returns for each run the iterations that match and lack a value; None when there is nothing to run."""
    matching = _matching_iterations(home, terms.where, drafts)
    return [_select_unanswered(terms, draft, matching.get(at)) for at, draft in enumerate(drafts)]


def _select_unanswered(terms: SelectionTerms, draft: Draft, matching: Selection | None) -> Selection | None:
    if terms.where and matching is None:
        return None
    selection: dict[int, Collection[int]] = dict(matching or {})
    if terms.again or (terms.beyond and draft.history.is_cut_short):
        return selection
    profile, reach = draft.profile, draft.fit.reach
    answered, is_answered_outside = _answered_iterations(terms.names, draft)
    if reach.depth(profile.main_paths) in (PREFIX, SUFFIX):
        return None if is_answered_outside else selection
    is_any_left = False
    for loop in profile.mains:
        if reach.enters(loop.path):
            candidates = selection.get(loop.number, range(loop.iteration_count))
            known = answered.get(loop.number, ())
            selection[loop.number] = [iteration for iteration in candidates if iteration not in known]
            is_any_left |= bool(selection[loop.number])
    return selection if is_any_left or (reach.is_after and not is_answered_outside) else None


def _answered_iterations(names: Sequence[str], draft: Draft) -> tuple[dict[int, set[int]], bool]:
    """The iterations of main loops in which every name has a value, and whether every name has one outside of them.

    Contradicted values don't count, nor do values that other ranks recorded, since the canonical rank may lack them;
    replays have all ranks.
    """
    history = draft.history
    contexts: dict[str, set[tuple[int, int]]] = {name: set() for name in names}
    for journal in history.journals:
        rank = journal.journal.rank
        if (rank and not journal.journal.replay) or not has_happened(journal.header):
            continue
        mains = history.ranks[rank].main_loops(history.profile)
        is_answer = read_verdicts(journal) < Verdict.CONTRADICTED
        for code, name in enumerate(journal.names):
            if name in contexts:
                rows = (journal.name == code) & is_answer
                pairs = set(zip(journal.loop[rows].tolist(), journal.iteration[rows].tolist(), strict=True))
                contexts[name] |= {_main_iteration(journal, mains, *pair) for pair in pairs}
    answered: dict[int, set[int]] = {}
    for loop, iteration in set.intersection(*contexts.values()) if contexts else ():
        answered.setdefault(loop, set()).add(iteration)
    return answered, 0 in answered


def _matching_iterations(home: Home, where: str | None, drafts: Sequence[Draft]) -> dict[int, Selection]:
    """The iterations for which the where clause holds, by the position of the draft."""
    if where is None:
        return {}
    contexts: list[IterationContext] = []
    origins: list[tuple[int, int, int]] = []  # draft, main loop, iteration
    for at, draft in enumerate(drafts):
        for loop, context, iteration in _all_contexts(draft.record.run, draft.recorded, draft.profile):
            contexts.append(context)
            origins.append((at, loop, iteration))
    matching: dict[int, dict[int, set[int]]] = {}
    for position in QueryEngine(home).select(contexts, where):
        at, loop, iteration = origins[position]
        iterations = matching.setdefault(at, {main.number: set() for main in drafts[at].profile.mains})
        iterations.setdefault(loop, set()).add(iteration)
    return {at: dict(iterations) for at, iterations in matching.items()}


def _main_iteration(journal: ParsedJournal, mains: Mapping[int, int], loop: int, iteration: int) -> tuple[int, int]:
    """The iteration of a main loop that contains a context, in the numbers of the plan; (0, 0) if none does."""
    while loop in journal.loops:
        if loop in mains:
            return mains[loop], iteration
        row = journal.loops[loop]
        loop, iteration = row.parent, row.parent_iteration
    return 0, 0


def _all_contexts(
    run: str, recorded: ParsedJournal, profile: RunProfile
) -> Iterator[tuple[int, IterationContext, int]]:
    """Every iteration of the main loops and of the loops in them: main loop, context, and the main loop's iteration."""
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
                    continue  # the rows of its nested loops contain its own values
                yield main.number, _make_context(run, recorded, number, iteration), outer
    if not profile.mains:  # no checkpoint is left: whichever iterations match, the whole script is run
        yield 0, IterationContext(run, (), ()), 0
        for number, loop in profile.loops.items():
            for iteration in range(loop.iteration_count):
                yield 0, _make_context(run, recorded, number, iteration), 0


def _make_context(run: str, recorded: ParsedJournal, number: int, iteration: int) -> IterationContext:
    row, key = recorded.loops[number], number << 32 | iteration
    value = recorded.known_items.integers.get(key, row.value(iteration))
    items = dict(row.items)
    if key in recorded.known_items.others:
        items[row.name] = recorded.known_items.others[key]
    return IterationContext(run, row.path, (*row.dims, value), to_json(items) if items else None)
