"""Executes a plan: runs its segments on workers, checks the values against the record, and merges them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import UNSET

from relive.hindsight.cost_measurements import record_measurements
from relive.hindsight.merge import RankReplay, merge_replay
from relive.hindsight.plan import FROM_START, Draft, RankHistory, RunHistory, Segment
from relive.hindsight.replay_plan import Case, Plan, Question, plan_case
from relive.hindsight.replay_session import ReplaySession
from relive.hindsight.run_results import Answer, ResultReader
from relive.hindsight.workers import (
    Job,
    Moment,
    RankTask,
    Task,
    Watch,
    Workspace,
    create_workspace,
    execute_tasks,
    materialise,
    rebuilt_python,
    rendezvous_variables,
    worker_environment,
)
from relive.model import RunRecord
from relive.store import Home
from relive.store.journal import line_schema


def execute_plan(
    session: ReplaySession, plan: Plan, *, watch: Watch, strict: bool = False, offline: bool = True,
    rebuild: bool = False, updates_costs: bool = True,
) -> Answer:  # fmt: skip
    """Replays all cases of a plan, stores the values, and returns how far they can be trusted.

    `updates_costs`: whether the measured times enter the cost model. They must not when this process runs at a low
    priority.
    """
    execution = _Execution(session, plan, watch, offline=offline, rebuild=rebuild)
    replays = [_CaseReplay(case, execution.history(case)) for case in plan.cases]
    execution.run(replays)
    workers_ended = time.perf_counter()
    answer = Answer(refusals=list(plan.refusals))
    for replay in replays:
        damaged = execution.replay_without_damaged(replay)
        reader = execution.read(replay)
        reader.answer.notes += [
            f"checkpoint {name[:12]} can't be read and was passed over; see `relive doctor`" for name in damaged
        ]
        if strict and reader.answer.mismatches and not execution.is_stopped and replay.case.plan.resume != FROM_START:
            execution.replay_from_start(replay)
            reader = execution.read(replay)
        execution.merge(replay, reader)
        answer.runs.append(reader.answer)
    answer.is_stopped = execution.is_stopped
    if updates_costs and plan.cases:
        after_s = (time.perf_counter() - workers_ended) / len(plan.cases)
        is_shared = plan.workers > 1 and len(execution.tasks) > 1
        record_measurements(session.home, execution.tasks, after_s=after_s, is_shared=is_shared)
    return answer


@dataclass(slots=True, eq=False)
class _CaseReplay:
    """A case while it is executed. Planning it again replaces all three."""

    case: Case
    history: RunHistory
    tasks: list[Task] = field(default_factory=list)


class _Execution:
    """Turns cases into tasks for the workers, and plans a case again when it did not work out."""

    def __init__(self, session: ReplaySession, plan: Plan, watch: Watch, *, offline: bool, rebuild: bool) -> None:
        self._session = session
        self._plan = plan
        self._watch = watch
        self._offline = offline
        self._rebuild = rebuild
        self.tasks: list[Task] = []  # all that were started, for the cost model
        self.is_stopped = False  # by the user: then nothing more is started

    def history(self, case: Case) -> RunHistory:
        return self._session.history(case.record, without=case.without)

    def run(self, replays: Sequence[_CaseReplay]) -> None:
        """Executes all segments of these cases."""
        for replay in replays:
            replay.tasks = [self._task(replay, segment, at) for at, segment in enumerate(replay.case.plan.segments)]
        tasks = [task for replay in replays for task in replay.tasks]
        self.tasks += tasks
        self.is_stopped = not execute_tasks(tasks, self._plan.workers, self._watch, self._session.starter)

    def replay_without_damaged(self, replay: _CaseReplay) -> list[str]:
        """Replays a case that met unreadable checkpoints from earlier ones, or from the start; returns their names."""
        damaged: list[str] = []
        while new := [name for task in replay.tasks for name in task.damaged if name not in damaged]:
            if self.is_stopped:
                break
            damaged += dict.fromkeys(new)
            self._plan_again(
                replay, self._plan.question, parts=len(replay.case.plan.segments), without=tuple(damaged)
            )  # fmt: skip
            self.run([replay])
        return damaged

    def replay_from_start(self, replay: _CaseReplay) -> None:
        """Replays a case without any checkpoint: slower, and independent of what they hold."""
        question = replace(self._plan.question, from_start=True)
        self._plan_again(replay, question, parts=1, without=replay.case.without)
        self.run([replay])

    def _plan_again(self, replay: _CaseReplay, question: Question, *, parts: int, without: tuple[str, ...]) -> None:
        old = replay.case
        replay.history = self._session.history(old.record, without=without)
        draft = Draft(old.record, replay.history, old.fit, old.selection, old.costs, parts, without=without)
        replay.case = plan_case(question, draft)

    # --- tasks --------------------------------------------------------------------------------------------------

    def _task(self, replay: _CaseReplay, segment: Segment, number: int) -> Task:
        case, history, record = replay.case, replay.history, replay.case.record
        threads = self._plan.question.threads or history.threads

        def prepare() -> list[RankTask]:
            base = self._session.folder / f"{record.run}-{number}-{os.urandom(3).hex()}"
            place = create_workspace(record, [rank.recorded for rank in history.ranks], self._tree(case), base)
            rendezvous = rendezvous_variables(history.ranks[0].variables)
            return [
                RankTask(
                    _job(self._session.home, replay, segment, place, rank, has_hashes=self._plan.question.has_hashes),
                    worker_environment(record, rank.variables, base, offline=self._offline, threads=threads)
                    | rendezvous,
                    was_cut_short=not rank.is_finished,
                )
                for rank in history.ranks
            ]

        return Task(prepare, self._python(record), segment.cost_s, record.run, case.fit.modules,
                    history.profile.before_s, segment.script_s, case.costs, history.width)  # fmt: skip

    def _python(self, record: RunRecord) -> str:
        if not self._rebuild:
            return sys.executable
        return rebuilt_python(self._session.home, record.environment.get("packages") or {})

    def _tree(self, case: Case) -> Path:
        """The patched tree of a version, materialised once for all segments of all its runs."""
        tree = self._session.folder / "trees" / case.record.version
        if not tree.exists():
            materialise(case.record, case.patch.files, tree)
        return tree

    # --- results ------------------------------------------------------------------------------------------------

    def read(self, replay: _CaseReplay) -> ResultReader:
        """Reads what the workers of a case logged, and compares it with the record."""
        reader = ResultReader(replay.case.record, replay.history, self._plan.question.names)
        reader.read(replay.tasks)
        return reader

    def merge(self, replay: _CaseReplay, reader: ResultReader) -> None:
        """Stores the values beside those of the run."""
        case, answer, names = replay.case, reader.answer, self._plan.question.names
        about: dict[str, Any] = {
            "names": list(names), "patch": case.patch.diff, "verdict": answer.verdict,
            "reproduced": answer.reproduced, "mismatches": len(answer.mismatches), "depth": case.plan.depth,
            "resume": case.plan.resume, "version": case.record.version,
        }  # fmt: skip
        ranks = [
            RankReplay(rank.number, rank.recorded, reader.journals[rank.number], _iterations_begun(rank))
            for rank in replay.history.ranks
        ]
        answer.replay, answer.added = merge_replay(self._session.home, case.record.run, ranks, names=names, about=about)


def _iterations_begun(rank: RankHistory) -> dict[int, int]:
    return {number: loop.iteration_count for number, loop in rank.profile.loops.items()}


def _job(
    home: Home, replay: _CaseReplay, segment: Segment, place: Workspace, rank: RankHistory, *, has_hashes: bool = False
) -> Job:  # fmt: skip
    record, history = replay.case.record, replay.history
    module = record.code.get("module")
    root = Path(record.code["root"])
    loops = [(row.loop, row.name, row.parent, row.parent_iteration) for row in rank.recorded.loops.values()]
    first = str(place.cwd) if module else str(place.script.parent)
    return Job.of(
        rank.translate(segment), run=record.run, home=str(home.path), folder=str(place.folder(rank.number)),
        script=str(place.script), module=module, cwd=str(place.cwd), argv=rank.argv[1:],
        search=[first, *_project_paths(root, place.tree)], protected=_protected(record, home),
        writable=[str(place.base), str(home.packs / "lock"), str(home.chunks)],
        args=rank.args, loops=loops, last_loop=rank.profile.last_loop, mains=list(rank.main_loops(history.profile)),
        nth=rank.nth, ending=rank.error,
        tree=str(place.tree), instrumented=record.code.get("instrumented"),
        only=[(str(place.tree / one.file), one.line, one.name) for one in replay.case.patch.added],
        rank=rank.number, ranks=history.width, moments=_moments(rank), digests=_digests(rank),
        random_states=_random_states(rank), has_hashes=has_hashes,
    )  # fmt: skip


def _random_states(rank: RankHistory) -> str:
    lines = line_schema.lines_of(line_schema.RandomStates, rank.recorded.lines)
    return lines[0].states if lines else ""


def _digests(rank: RankHistory) -> list[tuple[int, int, str]]:
    lines = line_schema.lines_of(line_schema.StateDigest, rank.recorded.lines)
    return [(line.loop, line.i, line.digest) for line in lines]


def _moments(rank: RankHistory) -> list[Moment]:
    """The moments of which this rank has a checkpoint that can be compared with."""
    taken = line_schema.lines_of(line_schema.CheckpointTaken, rank.recorded.lines)
    return [
        Moment(line.loop, line.i if line.place == "iteration" else -1, line.place, line.manifest)
        for line in taken
        if line.unknown is not UNSET
    ]


def _protected(record: RunRecord, home: Home) -> list[str]:
    """What a replay must not change: the project, the folder it was started in, and all runs."""
    return list(dict.fromkeys([record.code["root"], record.code.get("cwd") or record.code["root"], str(home.path)]))


def _project_paths(root: Path, tree: Path) -> list[str]:
    """Folders of the project that are on `sys.path` now (editable installs), mapped into the materialised tree."""
    inside = [Path(folder) for folder in sys.path if folder and Path(folder).is_relative_to(root)]
    libraries = ("site-packages", "dist-packages")
    return [str(tree / folder.relative_to(root)) for folder in inside if not {*libraries} & {*folder.parts}]
