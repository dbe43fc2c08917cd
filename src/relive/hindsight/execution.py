"""Doing what was planned: segments on workers, values checked against the record, and joined to their runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relive.hindsight.cost_measurements import learn
from relive.hindsight.merge import Replayed, join
from relive.hindsight.plan import RankHistory, Segment, plan, read_history
from relive.hindsight.question import Case, Plan, threads_of
from relive.hindsight.verification import Comparison, Mismatch, compare
from relive.hindsight.workers import (
    Job,
    Share,
    Task,
    Watch,
    Workspace,
    environment,
    execute,
    lay_out,
    materialise,
    meeting_place,
    rebuilt_python,
)
from relive.model import RunRecord
from relive.record.provenance import changes_since, is_same_machine
from relive.store import Home, JournalName, journals_in
from relive.store.journal import ROOT, ParsedJournal, parse_journal, read_lines

OTHER_HARDWARE = 1e-5  # how far values may be off when another machine computes them


@dataclass(slots=True)
class RunAnswer:
    """What came out for one run."""

    run: str
    added: int = 0
    reproduced: int = 0
    replay: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    volatile: int = 0
    missing: list[str] = field(default_factory=list)  # what could not be replayed, and why
    tracebacks: list[str] = field(default_factory=list)  # of errors that the script raised
    causes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unrestored: list[str] = field(default_factory=list)  # state that could not be put back
    is_stricter: bool = False

    @property
    def verdict(self) -> str:
        if self.mismatches or self.unrestored:
            return "unverified"
        return "exact" if self.reproduced else "nothing to compare"


@dataclass(slots=True)
class Answer:
    """What came out of a replay."""

    runs: list[RunAnswer] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    took_s: float = 0.0
    is_stopped: bool = False

    @property
    def added(self) -> int:
        return sum(run.added for run in self.runs)

    @property
    def reproduced(self) -> int:
        return sum(run.reproduced for run in self.runs)

    @property
    def is_good(self) -> bool:
        return not any(run.mismatches or run.missing for run in self.runs)


def execute_plan(
    home: Home, planned: Plan, *, watch: Watch, strict: bool = False, offline: bool = True, rebuild: bool = False,
    is_telling: bool = True,
) -> Answer:  # fmt: skip
    """Replay all cases of a plan, keep what came out, and tell how far it can be trusted.

    `is_telling`: what it took says what others will take; it does not when this process gives way to others.
    """
    doing = _Doing(home, planned, offline=offline, rebuild=rebuild)
    doing.execute(planned.cases, watch)
    worked = time.perf_counter()
    found = Answer(refusals=list(planned.refusals))
    for case in planned.cases:
        case, lost = doing.without_damaged(case, watch)
        result = doing.check(case)
        result.notes += [
            f"checkpoint {name[:12]} can't be read and was passed over; see `relive doctor`" for name in lost
        ]
        if strict and result.mismatches and not doing.is_stopped and case.plan.resume != "from the start":
            again = doing.stricter(case)
            doing.execute([again], watch)
            case, result = again, doing.check(again)
            result.is_stricter = True
        doing.keep(case, result)
        found.runs.append(result)
    found.is_stopped = doing.is_stopped
    if is_telling and planned.cases:
        after_s = (time.perf_counter() - worked) / len(planned.cases)
        tasks = doing.tasks_done()
        learn(home, tasks, after_s=after_s, is_shared=planned.workers > 1 and len(tasks) > 1)
    return found


class _Doing:
    """One replay at work."""

    def __init__(self, home: Home, planned: Plan, *, offline: bool, rebuild: bool) -> None:
        self._home = home
        self._planned = planned
        self._offline = offline
        self._rebuild = rebuild
        self._tasks: dict[int, list[Task]] = {}
        self._segments: dict[int, dict[int, list[ParsedJournal]]] = {}  # of each case, by rank
        self.is_stopped = False  # by the user: then nothing more is begun

    def execute(self, cases: Sequence[Case], watch: Watch) -> None:
        tasks: list[Task] = []
        for case in cases:
            own = [self._task(case, segment, at) for at, segment in enumerate(case.plan.segments)]
            self._tasks[id(case)] = own
            tasks += own
        self.is_stopped = not execute(tasks, self._planned.workers, watch, self._planned.starter)

    def tasks_done(self) -> list[Task]:
        return [task for tasks in self._tasks.values() for task in tasks]

    def without_damaged(self, case: Case, watch: Watch) -> tuple[Case, list[str]]:
        """A case that met checkpoints that can't be read is done again from earlier ones, or from the start."""
        lost: list[str] = []
        while new := [name for task in self._tasks[id(case)] for name in task.damaged if name not in lost]:
            if self.is_stopped:
                break
            lost += dict.fromkeys(new)
            course = read_history(self._home, case.entry, without=lost)
            again = plan(
                course.profile, case.reach, wanted=case.wanted, parts=len(case.plan.segments), costs=case.costs,
                leaving=case.leaving, from_start=self._planned.question.from_start,
            )  # fmt: skip
            case = replace(case, course=course, plan=again)
            self.execute([case], watch)
        return case, lost

    def stricter(self, case: Case) -> Case:
        """The same from the start: slower, and without trusting any checkpoint."""
        safer = plan(
            case.course.profile, case.reach, wanted=case.wanted, parts=1, costs=case.costs, leaving=case.leaving,
            from_start=True,
        )  # fmt: skip
        return replace(case, plan=safer)

    def _task(self, case: Case, segment: Segment, number: int) -> Task:
        course, record = case.course, case.entry.record
        threads = self._planned.question.threads or threads_of(course.recorded)

        def prepare() -> list[Share]:
            base = self._planned.folder / f"{record.run}-{number}-{os.urandom(3).hex()}"
            place = lay_out(record, [rank.recorded for rank in course.ranks], self._tree(case), base)
            meeting = meeting_place(course.ranks[0].variables)
            return [
                Share(
                    _job(self._home, case, segment, place, rank),
                    environment(record, rank.variables, base, offline=self._offline, threads=threads) | meeting,
                    was_cut=not rank.is_finished,
                )
                for rank in course.ranks
            ]

        return Task(prepare, self._python(case), segment.cost_s, record.run, case.modules, course.profile.before_s,
                    segment.script_s, case.costs, course.width)  # fmt: skip

    def _python(self, case: Case) -> str:
        if not self._rebuild:
            return sys.executable
        return rebuilt_python(self._home, case.entry.record.environment.get("packages") or {})

    def _tree(self, case: Case) -> Path:
        """The patched tree of a version, made once for all segments of all its runs."""
        record = case.entry.record
        tree = self._planned.folder / "trees" / record.version
        if not tree.exists():
            materialise(record, case.patch.files, tree)
        return tree

    # --- afterwards ---------------------------------------------------------------------------------------------

    def check(self, case: Case) -> RunAnswer:
        """Compare what was logged both then and now, rank by rank."""
        result = RunAnswer(case.entry.record.run)
        segments: dict[int, list[ParsedJournal]] = {rank.number: [] for rank in case.course.ranks}
        self._segments[id(case)] = segments
        for task in self._tasks[id(case)]:
            if not task.is_ok and task.attempts:
                result.missing.append(_missing(task))
                _add_new(result.tracebacks, [task.traceback] if task.traceback else [])
            for rank, parsed in self._logged(case, task, result):
                segments[rank.number].append(parsed)
        if result.mismatches:
            result.causes = _likely_causes(case.entry.record)
        result.causes += [f"{name} was not there yet when its state was to be restored" for name in result.unrestored]
        return result

    def _logged(self, case: Case, task: Task, result: RunAnswer) -> list[tuple[RankHistory, ParsedJournal]]:
        """What each rank logged in a segment; if it failed, in the iterations that all of them came to the end of."""
        pairs = zip(case.course.ranks, task.shares, strict=False)  # there are no shares if it was never begun
        read = [(rank, self._look(case, rank, share, result)) for rank, share in pairs]
        found = [(rank, parsed) for rank, parsed in read if parsed is not None]
        if task.is_ok or not found:
            return found
        names = {rank.number: {**rank.mains(case.course.profile), ROOT: ROOT} for rank, _ in found}
        ends = {rank.number: _iterations_done(parsed) for rank, parsed in found}
        common = set.intersection(
            *({(names[number].get(loop), iteration) for loop, iteration in done} for number, done in ends.items())
        )
        return [
            (rank, _part(parsed, {(loop, iteration) for loop, iteration in ends[rank.number]
                                  if (names[rank.number].get(loop), iteration) in common}))
            for rank, parsed in found
        ]  # fmt: skip

    def _look(self, case: Case, rank: RankHistory, share: Share, result: RunAnswer) -> ParsedJournal | None:
        """What a rank logged in a segment; what it says of itself, and how it compares, comes into the result."""
        if share.report is not None:
            _add_new(result.notes, share.report.notes)
            _add_new(result.unrestored, share.report.unrestored)
        _add_new(result.notes, _elsewhere(share, self._planned.question.names))
        parsed = _read(share, rank.recorded)
        if parsed is not None:
            tolerance = 0.0 if is_same_machine(case.entry.record) else OTHER_HARDWARE
            found: Comparison = compare(
                rank.recorded, parsed, leave_out=self._planned.question.names, tolerance=tolerance,
                is_whole=rank.is_finished,
            )  # fmt: skip
            result.reproduced += found.reproduced
            result.mismatches += [wrong if not rank.number else _of_rank(wrong, rank) for wrong in found.mismatches]
            result.volatile += found.volatile
        return parsed

    def keep(self, case: Case, result: RunAnswer) -> None:
        about: dict[str, Any] = {
            "names": list(self._planned.question.names), "patch": case.patch.diff, "verdict": result.verdict,
            "reproduced": result.reproduced, "mismatches": len(result.mismatches), "depth": case.plan.depth,
            "resume": case.plan.resume, "version": case.entry.record.version,
        }  # fmt: skip
        segments = self._segments[id(case)]
        ranks = [
            Replayed(rank.number, rank.recorded, segments[rank.number], _begun(rank)) for rank in case.course.ranks
        ]
        result.replay, result.added = join(
            self._home, case.entry.record.run, ranks, names=self._planned.question.names, about=about
        )


def _begun(rank: RankHistory) -> dict[int, int]:
    return {number: loop.iteration_count for number, loop in rank.profile.loops.items()}


def _of_rank(wrong: Mismatch, rank: RankHistory) -> Mismatch:
    return replace(wrong, where=f"{wrong.where} of rank {rank.number}")


def _add_new(told: list[str], more: Iterable[str]) -> None:
    told += [text for text in more if text not in told]


def _job(home: Home, case: Case, segment: Segment, place: Workspace, rank: RankHistory) -> Job:
    record = case.entry.record
    module = record.code.get("module")
    root = Path(record.code["root"])
    loops = [(row.loop, row.name, row.parent, row.parent_iteration) for row in rank.recorded.loops.values()]
    first = str(place.cwd) if module else str(place.script.parent)
    return Job.of(
        rank.own(segment), run=record.run, home=str(home.path), folder=str(place.folder(rank.number)),
        script=str(place.script), module=module, cwd=str(place.cwd), argv=rank.argv[1:],
        search=[first, *_project_paths(root, place.tree)], protected=_protected(record, home),
        writable=[str(place.base), str(home.packs / "lock"), str(home.chunks)],
        args=rank.args, loops=loops, last_loop=rank.profile.last_loop, mains=list(rank.mains(case.course.profile)),
        nth=int(rank.recorded.header.get("nth") or 0), ending=rank.error,
        tree=str(place.tree), instrumented=record.code.get("instrumented"),
        only=[(str(place.tree / one.file), one.line, one.name) for one in case.patch.added],
        rank=rank.number, ranks=case.course.width,
    )  # fmt: skip


def _protected(record: RunRecord, home: Home) -> list[str]:
    """What a replay must leave as it is: the project, the folder it was started in, and all runs."""
    return list(dict.fromkeys([record.code["root"], record.code.get("cwd") or record.code["root"], str(home.path)]))


def _project_paths(root: Path, tree: Path) -> list[str]:
    """Folders of the project from which modules are imported now (an editable install): their old selves come first."""
    inside = [Path(folder) for folder in sys.path if folder and Path(folder).is_relative_to(root)]
    libraries = ("site-packages", "dist-packages")
    return [str(tree / folder.relative_to(root)) for folder in inside if not {*libraries} & {*folder.parts}]


def _read(share: Share, recorded: ParsedJournal) -> ParsedJournal | None:
    own = dict(journals_in(share.folder)).get(JournalName(0))
    return parse_journal(own, JournalName(0), recorded) if own is not None else None


def _iterations_done(parsed: ParsedJournal) -> set[tuple[int, int]]:
    """The iterations that a worker came to the end of."""
    return {(line["loop"], line["i"]) for line in parsed.lines if line.get("k") == "turn"}


def _part(parsed: ParsedJournal, done: set[tuple[int, int]]) -> ParsedJournal:
    """What was logged in some iterations."""
    inside = [
        _is_inside(parsed, loop, iteration, done)
        for loop, iteration in zip(parsed.loop.tolist(), parsed.iteration.tolist(), strict=True)
    ]
    return parsed.only(inside)


def _is_inside(parsed: ParsedJournal, loop: int, iteration: int, done: set[tuple[int, int]]) -> bool:
    while (loop, iteration) not in done:
        row = parsed.loops.get(loop)
        if row is None:
            return False
        loop, iteration = row.parent, row.parent_iteration
    return True


def _elsewhere(share: Share, names: Sequence[str]) -> list[str]:
    """Whether processes that the script started logged what is asked for: that can't be told from their journals."""
    others = [path for name, path in journals_in(share.folder) if name != JournalName(0)]
    logged = {line["name"] for path in others for line in read_lines(path).lines if line.get("k") == "name"}
    return [f"{name} is also logged by processes that the script starts; those values are left out"
            for name in names if name in logged]  # fmt: skip


def _missing(task: Task) -> str:
    why = task.failures[-1] if task.failures else "it was stopped"
    if not task.shares:
        return why
    asked = [visit.iteration for visit in task.shares[0].job.visits if visit.counts][task.done_iterations() :]
    return f"{why} (missing: iterations {_ranges(asked)})" if asked else why


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first}–{last}" if first != last else str(first) for first, last in parts)


def _likely_causes(record: RunRecord) -> list[str]:
    """What may have made values come out differently."""
    unnamed = "an object that changes while training is not in the checkpoints: name it in checkpointing(…)"
    return changes_since(record) or [unnamed]
