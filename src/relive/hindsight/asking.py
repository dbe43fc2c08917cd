"""A question to past runs: which of them lack the answer, what it would cost, and how it is got."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import NotFound, ReliveError
from relive.hindsight.costing import read_costs
from relive.hindsight.depth import PREFIX, SUFFIX, Reach, find_reach, leaving_loops
from relive.hindsight.planner import Costs, RunPlan, Wanted, plan
from relive.hindsight.profile import Profile, read_profile
from relive.hindsight.source import Files, Patch, make_patch, read_tree
from relive.hindsight.workplace import entry_file, materialise
from relive.model import RUNNING
from relive.query import Context, Query
from relive.store import Home, Index, Parsed, RunEntry, find_run, kept_checkpoints, parse_run, to_text


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for."""

    names: tuple[str, ...]
    where: str | None = None
    runs: tuple[str, ...] = ()
    workers: int | None = None
    from_start: bool = False
    again: bool = False  # also where there are values already
    threads: int | None = None
    source: str | None = None  # a run whose version holds the statements; else they are in the working tree


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One run that is to be replayed."""

    entry: RunEntry
    recorded: Parsed
    profile: Profile
    patch: Patch
    reach: Reach
    plan: RunPlan
    wanted: Wanted
    leaving: frozenset[str]


@dataclass(slots=True)
class Plan:
    """The answer to `what would it take`: a case for each run, and why others are left out."""

    question: Question
    folder: Path
    costs: Costs
    workers: int
    cases: list[Case] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)  # run, reason

    @property
    def cost_s(self) -> float:
        """Until the last worker is done."""
        loads = [0.0] * self.workers
        for cost in sorted((s.cost_s for case in self.cases for s in case.plan.segments), reverse=True):
            loads[loads.index(min(loads))] += cost
        return max(loads, default=0.0)

    @property
    def work_s(self) -> float:
        return sum(case.plan.cost_s for case in self.cases)


@contextlib.contextmanager
def planned(home: Home, question: Question) -> Iterator[Plan]:
    """Work the plan out. Its folder holds the versions until the block is left; nothing else is changed."""
    folder = home.replays / f"{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir(parents=True)
    try:
        yield _Planning(home, question, folder).plan()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Planning:
    """Gathers what a plan needs."""

    def __init__(self, home: Home, question: Question, folder: Path) -> None:
        self._home = home
        self._question = question
        self._folder = folder
        self._entries: list[RunEntry] = []
        self._trees: dict[str, Files] = {}
        self._versions: dict[str, Files] = {}
        self._patches: dict[tuple[str, str], Patch] = {}

    def plan(self) -> Plan:
        question, costs = self._question, read_costs(self._home)
        drafts, refusals = self._drafts()
        threads = question.threads or max((_threads(draft[1]) for draft in drafts), default=1)
        workers = question.workers or max(1, (os.cpu_count() or 1) // max(1, threads // 2))
        parts = max(1, -(-workers // max(1, len(drafts))))
        found = Plan(question, self._folder, costs, workers, refusals=refusals)
        for entry, recorded, profile, patch, reach, wanted, leaving in drafts:
            planned = plan(
                profile, reach, wanted=wanted, parts=parts, costs=costs, leaving=leaving,
                from_start=question.from_start,
            )  # fmt: skip
            if planned.segments:
                found.cases.append(Case(entry, recorded, profile, patch, reach, planned, wanted, leaving))
            else:
                found.refusals.append((entry.record.run, "; ".join(planned.reasons) or "nothing is left to replay"))
        return found

    def _drafts(
        self,
    ) -> tuple[list[tuple[RunEntry, Parsed, Profile, Patch, Reach, Wanted, frozenset[str]]], list[tuple[str, str]]]:
        drafts, refusals = [], []
        for entry in self._candidates():
            run = entry.record.run
            try:
                patch, files = self._patch(entry)
                if patch.refusal:
                    refusals.append((run, patch.refusal))
                    continue
                recorded, profile = self._profile(entry)
                reach = find_reach({**files, **patch.files}, entry_file(entry.record), patch.added, profile.main_paths)
                drafts.append((entry, recorded, profile, patch, reach, leaving_loops(files)))
            except ReliveError as error:
                refusals.append((run, str(error)))
        wanted = self._wanted([(draft[0], draft[1], draft[2], draft[4]) for draft in drafts])
        kept = []
        for (entry, recorded, profile, patch, reach, leaving), some in zip(drafts, wanted, strict=True):
            if some is None:
                refusals.append((entry.record.run, "it has these values already; --again replays it once more"))
            else:
                kept.append((entry, recorded, profile, patch, reach, some, leaving))
        return kept, refusals

    def _candidates(self) -> list[RunEntry]:
        entries = self._entries = Index(self._home).runs()
        if self._question.runs:
            return [find_run(entries, word) for word in self._question.runs]
        if not entries:
            raise NotFound("there are no runs yet; record one with `python train.py`")
        return [entry for entry in entries if entry.record.outcome != RUNNING]

    def _patch(self, entry: RunEntry) -> tuple[Patch, Files]:
        record = entry.record
        if record.world_size > 1:
            return Patch(refusal=f"it was recorded by {record.world_size} ranks, which are not replayed yet"), {}
        if not record.version:
            return Patch(refusal="it has no code version; `versions` was switched off, or git was missing"), {}
        where, new = self._new_files(entry)
        old = self._version(entry)
        key = record.version, where
        if key not in self._patches:
            self._patches[key] = make_patch(old, new, self._question.names)
        return self._patches[key], old

    def _new_files(self, entry: RunEntry) -> tuple[str, Files]:
        """Where the statements are looked for: the working tree of the run's project, or another run's version."""
        if self._question.source is not None:
            other = find_run(self._entries, self._question.source)
            return other.record.version, self._version(other)
        root = str(entry.record.code["root"])
        if root not in self._trees:
            if not os.path.isdir(root):
                raise NotFound(f"{root} is gone; name a run whose version has the statement with --from RUN")
            self._trees[root] = read_tree(Path(root))
        return root, self._trees[root]

    def _version(self, entry: RunEntry) -> Files:
        version = entry.record.version
        if version not in self._versions:
            tree = self._folder / "versions" / version
            materialise(entry.record, {}, tree)
            self._versions[version] = read_tree(tree)
        return self._versions[version]

    def _profile(self, entry: RunEntry) -> tuple[Parsed, Profile]:
        record = entry.record
        journals = parse_run(self._home, record.run)
        main = next(journal for journal in journals if not journal.journal.rank and not journal.journal.process)
        rows = kept_checkpoints(self._home.run_folder(record.run), [main])
        start_up_s = float(main.header.get("since_start_s") or 1.0)
        return main, read_profile(record.run, main, rows, start_up_s=start_up_s)

    # --- which iterations ---------------------------------------------------------------------------------------

    def _wanted(self, drafts: Sequence[tuple[RunEntry, Parsed, Profile, Reach]]) -> list[Wanted | None]:
        """For each run the iterations that are asked for and lack an answer; None when nothing is."""
        chosen = self._where(drafts)
        return [self._lacking(*draft, chosen.get(at)) for at, draft in enumerate(drafts)]

    def _lacking(
        self, entry: RunEntry, recorded: Parsed, profile: Profile, reach: Reach, chosen: Wanted | None
    ) -> Wanted | None:
        if self._question.where and chosen is None:
            return None
        wanted: dict[int, Collection[int]] = dict(chosen or {})
        if self._question.again:
            return wanted
        done, is_done_outside = self._done(entry, profile)
        depth = reach.depth(profile.main_paths)
        if depth in (PREFIX, SUFFIX):
            return None if is_done_outside else wanted
        left = False
        for loop in profile.mains:
            if reach.enters(loop.path):
                asked = wanted.get(loop.number, range(loop.iterations))
                wanted[loop.number] = [turn for turn in asked if turn not in done.get(loop.number, ())]
                left |= bool(wanted[loop.number])
        return wanted if left or (reach.is_after and not is_done_outside) else None

    def _done(self, entry: RunEntry, profile: Profile) -> tuple[dict[int, set[int]], bool]:
        """The iterations of main loops in which each of the names has a value, recorded or replayed."""
        names = set(self._question.names)
        per_name: dict[str, set[tuple[int, int]]] = {name: set() for name in names}
        for journal in parse_run(self._home, entry.record.run):
            for code, name in enumerate(journal.names):
                if name in names and not journal.journal.rank:
                    rows = journal.name == code
                    pairs = set(zip(journal.loop[rows].tolist(), journal.iteration[rows].tolist(), strict=True))
                    per_name[name] |= {_main_turn(journal, profile, *pair) for pair in pairs}
        everywhere = set.intersection(*per_name.values()) if per_name else set()
        done: dict[int, set[int]] = {}
        for loop, turn in everywhere:
            done.setdefault(loop, set()).add(turn)
        return done, 0 in done

    def _where(self, drafts: Sequence[tuple[RunEntry, Parsed, Profile, Reach]]) -> dict[int, Wanted]:
        where = self._question.where
        if where is None:
            return {}
        contexts: list[Context] = []
        meant: list[tuple[int, int, int]] = []  # draft, main loop, iteration
        for at, (entry, recorded, profile, _) in enumerate(drafts):
            for loop, context, turn in _contexts(entry, recorded, profile):
                contexts.append(context)
                meant.append((at, loop, turn))
        chosen: dict[int, dict[int, set[int]]] = {}
        for position in Query(self._home.path).select(contexts, where):
            at, loop, turn = meant[position]
            turns = chosen.setdefault(at, {number.number: set() for number in drafts[at][2].mains})
            turns.setdefault(loop, set()).add(turn)
        return {at: dict(turns) for at, turns in chosen.items()}


def _threads(recorded: Parsed) -> int:
    return max(
        (int(line.get("threads") or 1) for line in recorded.lines if line.get("k") == "checkpointing"), default=1
    )


def _main_turn(journal: Parsed, profile: Profile, loop: int, turn: int) -> tuple[int, int]:
    """The iteration of a main loop that a context lies in; (0, 0) for what lies in none."""
    mains = {main.number for main in profile.mains}
    while loop in journal.loops:
        if loop in mains:
            return loop, turn
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
            loop, row = profile.loops[number], recorded.loops[number]
            for turn in range(loop.iterations):
                key = number << 32 | turn
                own = recorded.known_items.integers.get(key, row.value(turn))
                items = dict(row.items)
                if key in recorded.known_items.others:
                    items[row.name] = recorded.known_items.others[key]
                outer = turn if number == main.number else loop.parent_iteration
                if number == main.number and number in inner and any(n.iterations for n in main.turns[turn].nested):
                    continue  # its nested loops have rows, onto which it is joined
                yield main.number, Context(run, row.path, (*row.dims, own), to_text(items) if items else None), outer
    if not profile.mains:
        yield 0, Context(run, (), ()), 0
