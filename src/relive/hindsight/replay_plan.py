"""The plan of a replay as data: what was asked, how each run is replayed, at what cost, and which runs are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relive.hindsight.analysis import InsertedStatement, Patch, PatchFit
from relive.hindsight.plan import Costs, Draft, RunPlan, Selection, plan_run
from relive.model import RunRecord

GUESSED = "the place is a guess; look at it with --show-patch RUN, choose it with --at or --edit, or add --guesses"
BEYOND = "add --beyond-the-end to compute it anyway"
NEVER_HAPPENED = "what it never came to is computed from the start"
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
    beyond_the_end: bool = False  # also what runs that ended early never came to
    patience: float | None = None  # the least seconds without progress after which a worker is stopped; 0: never
    has_hashes: bool = False  # take the hashes of all memory at the end of each visited iteration
    inserted: InsertedStatement | None = None  # a statement that is in no file: it is taken from a tree that has it


HAS_VALUES = "it has these values already; --again replays it once more"


@dataclass(frozen=True, slots=True)
class Case:
    """One run to replay: the patch, the selected iterations, and how they are reached."""

    record: RunRecord
    fit: PatchFit
    selection: Selection
    costs: Costs
    plan: RunPlan
    width: int = 1  # ranks, which are replayed together
    without: tuple[str, ...] = ()  # manifests of checkpoints that can't be read

    @property
    def patch(self) -> Patch:
        return self.fit.patch


@dataclass(frozen=True, slots=True)
class Plan:
    """A case for each run that is replayed, and the reason for each that is not."""

    question: Question
    workers: int
    cases: tuple[Case, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()  # run, reason
    loading_s: float = 0.0  # of libraries that all workers share, before the first can begin

    @property
    def is_answered(self) -> bool:
        """Whether nothing is left to replay because runs have the values already."""
        reasons = [reason for _, reason in self.refusals]
        return not self.cases and HAS_VALUES in reasons and GUESSED not in reasons

    @property
    def cost_s(self) -> float:
        """The predicted time until the last worker is done."""
        loads = [0.0] * self.workers
        segments = [(segment.cost_s, case.width) for case in self.cases for segment in case.plan.segments]
        for cost, width in sorted(segments, reverse=True):
            loads.sort()
            taken = min(width, self.workers)  # ranks begin when there is room for all of them
            loads[:taken] = [loads[taken - 1] + cost] * taken
        return self.loading_s + max(loads, default=0.0) + self._after_s

    @property
    def work_s(self) -> float:
        """The predicted time of all workers together."""
        return self.loading_s + sum(case.plan.cost_s for case in self.cases) + self._after_s

    @property
    def _after_s(self) -> float:
        return sum(case.costs.after_s for case in self.cases)

    @property
    def guesses(self) -> list[Case]:
        """The cases in which the place of a statement has low confidence."""
        return [case for case in self.cases if case.patch.confidence == "low"]

    def without_guesses(self) -> Plan:
        """Returns the plan with the guessed cases moved to the refusals."""
        certain = tuple(case for case in self.cases if case.patch.confidence != "low")
        refused = tuple((case.record.run, GUESSED) for case in self.guesses)
        return replace(self, cases=certain, refusals=(*self.refusals, *refused))


def assemble_plan(
    question: Question, drafts: Sequence[Draft], *, workers: int, refusals: Sequence[tuple[str, str]] = (),
    loading_s: float = 0.0,
) -> Plan:  # fmt: skip
    """Plans every drafted run. A run for which nothing has to run is refused, with the planner's reasons."""
    cases = [plan_case(question, draft) for draft in drafts]
    empty = [
        (case.record.run, "; ".join(case.plan.reasons) or "nothing is left to replay")
        for case in cases
        if not case.plan.segments
    ]
    return Plan(
        question, workers, tuple(case for case in cases if case.plan.segments), (*refusals, *empty), loading_s
    )  # fmt: skip


def plan_case(question: Question, draft: Draft) -> Case:
    """Plans one run, with the notes that users see about it."""
    fit, profile = draft.fit, draft.profile
    if question.beyond_the_end and draft.history.is_cut_short:
        profile = replace(profile, mains=[], why_from_start=NEVER_HAPPENED)
    found = plan_run(
        profile, fit.reach, selection=draft.selection, parts=draft.parts, leaving=fit.leaving, costs=draft.costs,
        from_start=question.from_start or draft.is_distrusted or bool(fit.kept),
    )  # fmt: skip
    notes = ([DISTRUSTED] if draft.is_distrusted else []) + (draft.history.notes if found.segments else [])
    if fit.kept:
        names = ", ".join(fit.kept[:3])
        notes.append(f"the added code keeps {names} from one iteration to the next, so it runs from the start")
    planned = replace(found, reasons=(*found.reasons, *notes))
    return Case(draft.record, fit, draft.selection, draft.costs, planned, draft.history.width, draft.without)
