"""A question to past runs: which of them lack the answer, what it would cost, and how it is got."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from relive.errors import NotFound, ReliveError
from relive.hindsight.analysis import (
    Files,
    Patch,
    PatchCache,
    PatchFit,
    Pins,
    Reach,
    from_text,
    make_patch,
    put_at,
    read_tree,
)
from relive.hindsight.check_result import read_check
from relive.hindsight.plan import (
    CostModel,
    Costs,
    Draft,
    Profile,
    RunHistory,
    RunPlan,
    Wanted,
    WantedNames,
    plan,
    read_history,
    wanted_of,
)
from relive.hindsight.workers import WorkerStarter, entry_file, variables
from relive.instrument import RULES
from relive.model import RUNNING
from relive.record.process import read_launch_context
from relive.store import Home
from relive.store.catalog import Index, RunEntry, find_run
from relive.store.journal import ParsedJournal
from relive.store.versions import VersionFiles

Edit = Callable[[Files], Files]
_BETWEEN = 3  # versions that are asked on the way from an old one to the newest
GUESSED = "the place is a guess; look at it with --show-patch RUN, choose it with --at or --edit, or add --guesses"
DISTRUSTED = "its checkpoints did not reproduce it when it ended, so it runs from the start"


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
    at: str | None = None  # `file:line` of the old version, where the user wants the statement
    edit: Edit | None = None  # lets the user change the patched files of a version


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One run that is to be replayed."""

    entry: RunEntry
    course: RunHistory
    patch: Patch
    reach: Reach
    plan: RunPlan
    wanted: Wanted
    leaving: frozenset[str]
    costs: Costs = field(default_factory=Costs)
    modules: tuple[str, ...] = ()  # libraries that may be loaded before the script is


@dataclass(slots=True)
class Plan:
    """The answer to `what would it take`: a case for each run, and why others are left out."""

    question: Question
    folder: Path
    workers: int
    starter: WorkerStarter = field(default_factory=WorkerStarter)
    loading_s: float = 0.0  # of libraries that all workers share, before the first can begin
    cases: list[Case] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)  # run, reason

    @property
    def cost_s(self) -> float:
        """Until the last worker is done."""
        loads = [0.0] * self.workers
        segments = [(s.cost_s, case.course.width) for case in self.cases for s in case.plan.segments]
        for cost, width in sorted(segments, reverse=True):
            loads.sort()
            taken = min(width, self.workers)  # ranks begin when there is room for all of them
            loads[:taken] = [loads[taken - 1] + cost] * taken
        return self.loading_s + max(loads, default=0.0) + self._after_s

    @property
    def _after_s(self) -> float:
        return sum(case.costs.after_s for case in self.cases)

    @property
    def guesses(self) -> list[Case]:
        """The cases in which the place of a statement is not known well."""
        return [case for case in self.cases if case.patch.confidence == "low"]

    def leave_out_guesses(self) -> None:
        """Nobody said that they should be tried."""
        guesses = self.guesses
        self.cases = [case for case in self.cases if case not in guesses]
        self.refusals += [(case.entry.record.run, GUESSED) for case in guesses]

    @property
    def work_s(self) -> float:
        return self.loading_s + sum(case.plan.cost_s for case in self.cases) + self._after_s


@contextlib.contextmanager
def plan_replay(home: Home, question: Question) -> Iterator[Plan]:
    """Work the plan out. Its folder holds the versions until the block is left; nothing else is changed."""
    folder = home.replays / f"{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir(parents=True)
    try:
        with WorkerStarter(read_launch_context().settings.warm_seconds) as starter:
            yield _Planning(home, question, folder).plan(starter)
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
        self._readers: dict[str, VersionFiles] = {}
        self._opened = contextlib.ExitStack()
        self._edited: set[str] = set()
        self._fittings = {how: PatchCache(home, question.names, instrumented=how) for how in (False, True)}

    def plan(self, starter: WorkerStarter) -> Plan:
        with self._opened:
            drafts, refusals = self._drafts()
        question, known = self._question, CostModel.read(self._home)
        threads = question.threads or max((threads_of(draft.recorded) or 1 for draft in drafts), default=1)
        workers = question.workers or max(1, (os.cpu_count() or 1) // max(1, threads // 2))
        parts = [max(1, -(-(workers // draft.course.width) // len(drafts))) for draft in drafts]
        found = Plan(question, self._folder, workers, starter, refusals=refusals)
        is_shared = workers > 1 and sum(parts) > 1
        for draft, most in zip(drafts, parts, strict=True):
            fit, run = draft.fit, draft.entry.record.run
            costs = known.costs(run, is_shared=is_shared, is_loaded=bool(fit.modules))
            self._expect_loading(draft, found, costs)
            planned = self._planned(draft, costs, most)
            if planned.segments:
                case = Case(draft.entry, draft.course, fit.patch, fit.reach, planned, draft.wanted, fit.leaving, costs,
                            fit.modules)  # fmt: skip
                found.cases.append(case)
            else:
                found.refusals.append((run, "; ".join(planned.reasons) or "nothing is left to replay"))
        return found

    def _planned(self, draft: Draft, costs: Costs, parts: int) -> RunPlan:
        """The plan of one run, with what is to be said of it."""
        fit, check = draft.fit, read_check(self._home.run_folder(draft.entry.record.run))
        is_distrusted = check is not None and check.is_failed
        found = plan(
            draft.profile, fit.reach, wanted=draft.wanted, parts=parts, leaving=fit.leaving, costs=costs,
            from_start=self._question.from_start or is_distrusted,
        )  # fmt: skip
        reasons = list(found.reasons)
        if is_distrusted:
            reasons.append(DISTRUSTED)
        if found.segments:
            reasons += draft.course.notes
        return replace(found, reasons=tuple(reasons))

    def _expect_loading(self, draft: Draft, found: Plan, costs: Costs) -> None:
        """The libraries of a run are loaded once for all workers, unless a process has them already."""
        threads = self._question.threads or threads_of(draft.recorded)
        now = variables(draft.course.ranks[0].variables, threads=threads)
        if draft.fit.modules and found.starter.loaded_s(sys.executable, now, draft.fit.modules) is None:
            usual = costs.loading_s or (1 - costs.own_share) * draft.profile.before_s
            found.loading_s = max(found.loading_s, usual)

    # --- drafts -------------------------------------------------------------------------------------------------

    def _drafts(self) -> tuple[list[Draft], list[tuple[str, str]]]:
        drafts: list[Draft] = []
        refusals: list[tuple[str, str]] = []
        for entry in self._candidates():
            try:
                draft = self._draft(entry)
            except ReliveError as error:
                refusals.append((entry.record.run, str(error)))
                continue
            if draft.fit.patch.refusal:
                refusals.append((entry.record.run, draft.fit.patch.refusal))
            else:
                drafts.append(draft)
        kept, question = [], WantedNames(self._question.names, self._question.where, again=self._question.again)
        for draft, wanted in zip(drafts, wanted_of(self._home, question, drafts), strict=True):
            if wanted is None:
                refusals.append((draft.entry.record.run, self._why_not()))
            else:
                kept.append(replace(draft, wanted=wanted))
        return kept, refusals

    def _why_not(self) -> str:
        narrowed = "the condition does not hold in it, or " if self._question.where else ""
        return f"{narrowed}it has these values already; --again replays it once more"

    def _candidates(self) -> list[RunEntry]:
        entries = self._entries = Index(self._home).runs()
        if self._question.runs:
            return [find_run(entries, word) for word in self._question.runs]
        if not entries:
            raise NotFound("there are no runs yet; record one with `python train.py`")
        return [entry for entry in entries if entry.record.outcome != RUNNING]

    def _draft(self, entry: RunEntry) -> Draft:
        record = entry.record
        if not record.version:
            raise NotFound("it has no code version; `versions` was switched off, or git was missing")
        rules = (record.code.get("instrumented") or {}).get("rules", RULES)
        if rules != RULES:
            raise NotFound(f"it was recorded hands-free by rules {rules}; use a relive that has them, not {RULES}")
        course = read_history(self._home, entry)
        return Draft(entry, course, self._fit(entry, course.profile), {})

    def _fit(self, entry: RunEntry, profile: Profile) -> PatchFit:
        tree, script = str(entry.record.code.get("tree")), entry_file(entry.record)
        new = self._new_files(entry)
        fitting = self._fittings[_is_instrumented(entry)]
        pinned = self._pinned(tree, entry, new)
        if pinned is not None:
            return fitting.of_patch(pinned, self._version(entry), script, profile.main_paths, is_led=profile.is_led)
        known = fitting.find(tree, new, script, profile.main_paths, is_led=profile.is_led)
        return known or fitting.make(
            tree, self._version(entry), new, script, profile.main_paths, between=lambda: self._between(entry),
            is_led=profile.is_led,
        )  # fmt: skip

    def _between(self, entry: RunEntry) -> list[Files]:
        """A few versions between that of a run and the newest, the oldest first."""
        own = entry.record
        later = {
            str(other.record.code.get("tree")): other
            for other in self._entries
            if other.record.started_us > own.started_us and other.record.code.get("root") == own.code.get("root")
            and other.record.version and other.record.code.get("tree") != own.code.get("tree")
        }  # fmt: skip
        chosen = list(later.values())
        return (
            [self._version(chosen[len(chosen) * at // (_BETWEEN + 1)]) for at in range(1, _BETWEEN + 1)]
            if chosen
            else []
        )

    def _pinned(self, tree: str, entry: RunEntry, new: Files) -> Patch | None:
        """The patch that the user chose for this version, now or earlier."""
        question, any_logger = self._question, _is_instrumented(entry)
        pins = Pins(self._home, question.names)
        if question.at is not None:
            pins.keep(tree, put_at(self._version(entry), new, question.names, question.at, any_logger=any_logger))
        known = pins.find(tree)
        if question.edit is not None and tree not in self._edited:
            old = self._version(entry)
            patch = known or make_patch(old, new, question.names, any_logger=any_logger)
            edited = question.edit(patch.files or old)
            pins.keep(tree, from_text(old, edited, question.names, any_logger=any_logger))
            self._edited.add(tree)
            known = pins.find(tree)
        return known

    def _new_files(self, entry: RunEntry) -> Files:
        """Where the statements are looked for: the working tree of the run's project, or another run's version."""
        if self._question.source is not None:
            return self._version(find_run(self._entries, self._question.source))
        root = str(entry.record.code["root"])
        if root not in self._trees:
            if not os.path.isdir(root):
                raise NotFound(f"{root} is gone; name a run whose version has the statement with --from RUN")
            self._trees[root] = read_tree(Path(root))
        return self._trees[root]

    def _version(self, entry: RunEntry) -> Files:
        code, version = entry.record.code, entry.record.version
        if version not in self._versions:
            repository = str(code["repository"])
            if repository not in self._readers:
                self._readers[repository] = self._opened.enter_context(VersionFiles(Path(repository)))
            self._versions[version] = self._readers[repository].read(version)
        return self._versions[version]


def _is_instrumented(entry: RunEntry) -> bool:
    return bool(entry.record.code.get("instrumented"))


def threads_of(recorded: ParsedJournal) -> int | None:
    """How many threads the numeric library of a run had, when it was last seen."""
    lines = [line for line in recorded.lines if line.get("k") == "checkpointing" and line.get("threads")]
    return int(lines[-1]["threads"]) if lines else None
