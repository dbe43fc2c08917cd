"""Executes a plan: runs its segments on workers, checks the values against the record, and merges them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from relive.hindsight.analysis import read_source
from relive.hindsight.analysis.reads import CodeFacts, has_callbacks
from relive.hindsight.cost_measurements import record_measurements
from relive.hindsight.merge import RankReplay, merge_replay
from relive.hindsight.notebooks import is_notebook_run, join_cells, read_cells
from relive.hindsight.plan import FROM_START, Draft, RankHistory, RunHistory, Segment, describe_ending
from relive.hindsight.replay_plan import BEYOND, Case, Plan, Question, plan_case
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
    entry_file,
    execute_tasks,
    materialise,
    needs_temporary_folder,
    outside_fields,
    rebuilt_python,
    rendezvous_variables,
    worker_environment,
)
from relive.hindsight.workers.supervision import DEFAULT_PATIENCE_S, Patience
from relive.model import RunRecord
from relive.record.provenance import OF_THE_PLACE, SecretFilter, is_of_the_place, named_in
from relive.store import Home, require_trust
from relive.store.chunks import list_checkpoints
from relive.store.journal import line_schema


def execute_plan(
    session: ReplaySession, plan: Plan, *, watch: Watch, strict: bool = False, offline: bool = True,
    rebuild: bool = False, updates_costs: bool = True, falls_back: bool = True, is_own: bool = False,
) -> Answer:  # fmt: skip
    """Replays all cases of a plan, stores the values, and returns how far they can be trusted.

    `updates_costs`: whether the measured times enter the cost model. They must not when this process runs at a low
    priority. `falls_back`: whether a run for which no checkpoint can serve runs from the start. `is_own`: this process
    knows that its user has just recorded the runs, so that nobody has to be trusted.
    """
    for case in () if is_own else plan.cases:
        require_trust(session.home, case.record.run, doing="a replay")
    session.note_plan(plan)
    execution = Execution(session, plan, watch, offline=offline, rebuild=rebuild)
    replays = [CaseReplay(case, execution.history(case)) for case in plan.cases]
    execution.run(replays)
    workers_ended = time.perf_counter()
    answer = Answer(refusals=list(plan.refusals))
    for replay in replays:
        notes = execution.mend(replay, falls_back=falls_back)
        reader = execution.read(replay)
        reader.answer.notes += notes
        is_wrong = bool(reader.answer.mismatches or reader.answer.differing)
        has_faults = reader.answer.has_restore_faults  # a checkpoint that did not restore what it holds is passed over
        if ((strict and is_wrong) or has_faults) and not execution.is_stopped and replay.case.plan.resume != FROM_START:
            reader = execution.replay_from_start(replay, reader)
        execution.merge(replay, reader)
        if cut := execution.describe_cut(replay, reader):
            if reader.answer.added:
                reader.answer.notes.append(cut)
            else:
                answer.refusals.append((replay.case.record.run, cut))
        answer.runs.append(reader.answer)
    answer.is_stopped = execution.is_stopped
    if updates_costs and plan.cases:
        after_s = (time.perf_counter() - workers_ended) / len(plan.cases)
        is_shared = plan.workers > 1 and len(execution.tasks) > 1
        record_measurements(session.home, execution.tasks, after_s=after_s, is_shared=is_shared)
    return answer


@dataclass(slots=True, eq=False)
class CaseReplay:
    """A case while it is executed. Planning it again replaces all three."""

    case: Case
    history: RunHistory
    tasks: list[Task] = field(default_factory=list)


class Execution:
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

    def run(self, replays: Sequence[CaseReplay]) -> None:
        """Executes all segments of these cases."""
        for replay in replays:
            replay.tasks = [self._task(replay, segment, at) for at, segment in enumerate(replay.case.plan.segments)]
        tasks = [task for replay in replays for task in replay.tasks]
        self.tasks += tasks
        self.is_stopped = not execute_tasks(tasks, self._plan.workers, self._watch, self._session.starter)

    def mend(self, replay: CaseReplay, *, falls_back: bool) -> list[str]:
        """Replays a case in another way if its checkpoints did not serve; returns notes that say so."""
        damaged = self.replay_without_damaged(replay)
        notes = [f"checkpoint {name[:12]} can't be read and was passed over; see `relive doctor`" for name in damaged]
        why = next((task.needs_start for task in replay.tasks if task.needs_start), "")
        if why and falls_back and not self.is_stopped:
            self.run_from_start(replay)
            notes.append(f"it ran from the start: {why}")
        return notes

    def replay_without_damaged(self, replay: CaseReplay) -> list[str]:
        """Replays a case that met unreadable checkpoints from earlier ones, or from the start; returns their names."""
        damaged: list[str] = []
        paths = replay.history.profile.main_paths
        while new := [name for task in replay.tasks for name in task.damaged if name not in damaged]:
            if self.is_stopped:
                break
            damaged += dict.fromkeys(new)
            self._plan_again(
                replay, self._plan.question, parts=len(replay.case.plan.segments), without=tuple(damaged)
            )  # fmt: skip
            if replay.history.profile.main_paths != paths:
                # A loop has no checkpoint left, and so is no main loop any more: where the statement may run was
                # determined for other main loops.
                everything = [row.manifest for journal in replay.history.journals for row in list_checkpoints(journal)]
                self._plan_again(replay, self._plan.question, parts=1, without=(*damaged, *everything))
            self.run([replay])
        return damaged

    def replay_from_start(self, replay: CaseReplay, reader: ResultReader) -> ResultReader:
        """Replays a case without any checkpoint: slower, and independent of what they hold.

        A script that is not deterministic comes out worse that way; then what was read before stays.
        """
        before = replay.case, replay.history, replay.tasks
        self.run_from_start(replay)
        again = self.read(replay)
        if again.answer.is_better_than(reader.answer):
            return again
        replay.case, replay.history, replay.tasks = before
        return reader

    def run_from_start(self, replay: CaseReplay) -> None:
        """Executes a case without any checkpoint."""
        question = replace(self._plan.question, from_start=True)
        self._plan_again(replay, question, parts=1, without=replay.case.without)
        self.run([replay])

    def _plan_again(self, replay: CaseReplay, question: Question, *, parts: int, without: tuple[str, ...]) -> None:
        old = replay.case
        replay.history = self._session.history(old.record, without=without)
        draft = Draft(old.record, replay.history, old.fit, old.selection, old.costs, parts, without=without)
        replay.case = plan_case(question, draft)

    # --- tasks --------------------------------------------------------------------------------------------------

    def _task(self, replay: CaseReplay, segment: Segment, number: int) -> Task:
        case, history, record = replay.case, replay.history, replay.case.record
        threads = self._plan.question.threads or history.threads

        def prepare() -> list[RankTask]:
            base = self._session.folder / f"{record.run}-{number}-{os.urandom(3).hex()}"
            place = create_workspace(
                record, [rank.recorded for rank in history.ranks], self._tree(case), base, self._session.home.path
            )
            rendezvous = rendezvous_variables(history.ranks[0].variables)
            protected = _protected(record, self._session.home)
            scratch = self._session.make_temporary_folder() if needs_temporary_folder(protected) else None
            unset = self._new_variables(replay)
            return [
                RankTask(
                    _job(
                        self._session.home,
                        self._plan.question,
                        replay,
                        segment,
                        place,
                        rank,
                        scratch,
                        self._session.begun_s,
                    ),
                    worker_environment(
                        rank.variables, base, offline=self._offline, threads=threads, scratch=scratch, unset=unset
                    )
                    | rendezvous,
                    was_cut_short=not rank.is_finished,
                )
                for rank in history.ranks
            ]

        return Task(prepare, self._python(record), segment.cost_s, record.run, case.fit.modules,
                    history.profile.before_s, segment.script_s, case.costs, history.width,
                    _patience(history, self._plan.question.patience))  # fmt: skip

    def _python(self, record: RunRecord) -> str:
        if not self._rebuild:
            return sys.executable
        return rebuilt_python(self._session.home, record.environment.get("packages") or {})

    def _tree(self, case: Case) -> Path:
        """The patched tree of a version, materialised once for all segments of all its runs."""
        record = case.record
        # Each run of a notebook has cells of its own, whatever the files beside the notebook are.
        tree = self._session.folder / "trees" / (record.run if is_notebook_run(record) else record.version)
        if not tree.exists():
            materialise(case.record, {**self._cell_file(case.record), **case.patch.files}, tree)
        return tree

    def _cell_file(self, record: RunRecord) -> dict[str, str]:
        if not is_notebook_run(record):
            return {}
        return {entry_file(record): join_cells(read_cells(self._session.history(record).recorded.lines))}

    def _new_variables(self, replay: CaseReplay) -> frozenset[str]:
        """Today's environment variables that the code names, and that the run did not have."""
        then, case = replay.history.ranks[0].variable_names, replay.case
        new = {name for name in os.environ if then is not None and name not in then and not is_of_the_place(name)}
        imported = replay.history.imports.files if new and replay.history.imports is not None else ()
        files = dict.fromkeys([entry_file(case.record), *case.patch.files, *imported]) if new else ()
        return frozenset(new & {name for file in files for name in named_in(read_source(self._tree(case), file) or "")})

    # --- results ------------------------------------------------------------------------------------------------

    def read(self, replay: CaseReplay) -> ResultReader:
        """Reads what the workers of a case logged, and compares it with the record."""
        reader = ResultReader(replay.case.record, replay.history, self._plan.question.names, self._code(replay))
        reader.read(replay.tasks)
        if not replay.case.plan.segments:
            why = "; ".join(replay.case.plan.reasons) or "nothing is left to replay"
            reader.answer.missing.append(
                f"without the checkpoints that can't be read no way to the values is left: {why}; see `relive doctor`,"
                " and ask again with --from-start"
            )
        return reader

    def _code(self, replay: CaseReplay) -> CodeFacts:
        """What the source says that the segments ran."""
        case, rank = replay.case, replay.history.ranks[0]
        return CodeFacts(
            partial(read_source, self._tree(case)), entry_file(case.record),
            added=case.patch.added, mains={loop.name for loop in replay.history.profile.mains},
            is_instrumented=bool(case.record.code.get("instrumented")),
            unrecorded={*(rank.variable_names or ()), *OF_THE_PLACE} - ({*rank.variables} - OF_THE_PLACE),
            has_hash_seed=rank.variables.get("PYTHONHASHSEED", "random") != "random",
            originals=case.patch.originals,
        )  # fmt: skip

    def merge(self, replay: CaseReplay, reader: ResultReader) -> None:
        """Stores the values beside those of the run."""
        case, answer, names = replay.case, reader.answer, self._plan.question.names
        about: dict[str, Any] = {
            "names": list(names), "patch": case.patch.diff, "causes": answer.causes, "reproduced": answer.reproduced,
            "mismatches": len(answer.mismatches), "depth": case.plan.depth,
            "resume": case.plan.resume, "version": case.record.version,
        }  # fmt: skip
        ranks = [
            RankReplay(
                rank.number, rank.recorded, reader.journals[rank.number], _iterations_begun(rank),
                reader.verdicts[rank.number],
            )
            for rank in replay.history.ranks
        ]  # fmt: skip
        home, run = self._session.home, case.record.run
        secrets = SecretFilter(home.settings.secret_patterns)
        about, causes = secrets.fields(about), {key: secrets.fields(why) for key, why in reader.reasons().items()}
        merged = merge_replay(home, run, ranks, names=names, about=about, causes=causes)
        answer.replay, answer.added, answer.verdicts = merged.number, merged.count, merged.verdicts
        if self._plan.question.beyond_the_end:
            beyond = [replace(rank, segments=reader.beyond[rank.rank], begun={}, verdicts=()) for rank in ranks]
            about = {**about, "beyond": True}
            answer.beyond = merge_replay(home, run, beyond, names=names, about=about, causes={}).count

    def describe_cut(self, replay: CaseReplay, reader: ResultReader) -> str:
        """Where the replay of a run had to end before the script did, if values may be missing for it."""
        if self._plan.question.beyond_the_end or not reader.is_cut:
            return ""
        record, history = replay.case.record, replay.history
        ending = describe_ending(record, history)
        if not history.is_cut_short:
            return f"it {ending}, which its replay does not meet; what follows is left out"
        names = ", ".join(self._plan.question.names)
        if reader.answer.added:
            return f"it {ending}; what it had not come to is left out; {BEYOND}"
        return f"it {ending}; {names} is logged where it never came; {BEYOND}"


def _patience(history: RunHistory, least_s: float | None) -> Patience:
    """The recorded times by which the progress of a run's workers is judged, in the loop numbers of its first rank."""
    common = history.profile
    mains = {own: common.loops[number] for own, number in history.ranks[0].main_loops(common).items()}
    inside_s = sum(loop.took_s for loop in mains.values())
    return Patience(
        DEFAULT_PATIENCE_S if least_s is None else least_s,
        outside_s=common.start_up_s + max(0.0, common.took_s - inside_s),
        iterations_s={own: max((one.took_s for one in loop.iterations), default=0.0) for own, loop in mains.items()},
        names={own: loop.name for own, loop in mains.items()},
        restored_bytes=common.largest_checkpoint_bytes,
    )


def _iterations_begun(rank: RankHistory) -> dict[int, int]:
    return {number: loop.iteration_count for number, loop in rank.profile.loops.items()}


def _job(
    home: Home, question: Question, replay: CaseReplay, segment: Segment, place: Workspace, rank: RankHistory,
    scratch: Path | None, begun_s: float,
) -> Job:  # fmt: skip
    record, history = replay.case.record, replay.history
    module = record.code.get("module")
    root = Path(record.code["root"])
    loops = [(row.loop, row.name, row.parent, row.parent_iteration) for row in rank.recorded.loops.values()]
    is_notebook = is_notebook_run(record)
    first = str(place.cwd) if module or is_notebook else str(place.script.parent)
    return Job.of(
        rank.translate(segment), run=record.run, home=str(home.path), folder=str(place.folder(rank.number)),
        script=str(place.script), module=module, cwd=str(place.cwd), argv=rank.argv[1:],
        argv0="" if module or os.path.isabs(rank.argv[0]) else rank.argv[0],
        search=[first, *_project_paths(root, place.tree)], protected=_protected(record, home),
        writable=[str(place.base), str(home.packs / "lock"), str(home.chunks), *([str(scratch)] if scratch else [])],
        args=rank.args, loops=loops, last_loop=rank.profile.last_loop, mains=list(rank.main_loops(history.profile)),
        nth=rank.nth, ending=rank.error, cells=read_cells(rank.recorded.lines) if is_notebook else [],
        tree=str(place.tree), instrumented=record.code.get("instrumented"),
        only=[(str(place.tree / one.file), one.line, one.name) for one in replay.case.patch.added],
        recorded={str(place.tree / file): text for file, text in replay.case.patch.originals.items()},
        rank=rank.number, ranks=history.width, horizon=rank.horizon, beyond=question.beyond_the_end,
        names=list(question.names), moments=_moments(rank), digests=_digests(rank),
        random_states=_random_states(rank), has_hashes=question.has_hashes,
        port=rank.variables.get("MASTER_PORT", ""), ended_s=(record.ended_us or 0) / 1e6 + 1.0, begun_s=begun_s,
        ignored_signals=record.environment.get("ignored_signals") or [], missing=list(place.missing),
        keeps_entry=has_callbacks(replay.case.patch.originals, replay.case.patch.files),
        **outside_fields(record, rank, place.base, scratch),
    )  # fmt: skip


def _random_states(rank: RankHistory) -> list[str]:
    return [line.states for line in line_schema.lines_of(line_schema.RandomStates, rank.recorded.lines)]


def _digests(rank: RankHistory) -> list[tuple[int, int, str, int]]:
    lines = line_schema.lines_of(line_schema.StateDigest, rank.recorded.lines)
    return [(line.loop, line.i, line.digest, line.leaves) for line in lines]


def _moments(rank: RankHistory) -> list[Moment]:
    """The moments of which this rank has a checkpoint that can be compared with."""
    taken = line_schema.lines_of(line_schema.CheckpointTaken, rank.recorded.lines)
    return [
        Moment(
            line.loop,
            line.i if line.place == "iteration" else -1,
            line.place,
            line.manifest,
            line.i,
            (line.taken_ns or 0) / 1e9,
        )
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
