"""Collects what a plan is assembled from: the runs that lack values, their histories, patches and predicted costs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relive.errors import NotFound, ReliveError
from relive.hashing import stable_hash
from relive.hindsight.analysis import (
    NOWHERE,
    Files,
    Patch,
    PatchCache,
    PatchFit,
    PinnedPatches,
    ScriptShape,
    insert_statement,
    make_patch,
    may_handle_errors,
    patch_at_line,
    patch_from_files,
    read_python_files,
)
from relive.hindsight.notebooks import (
    NotebookCell,
    cell_file_name,
    cells_of_notebook,
    cells_of_run,
    find_interruption,
    find_obstacle,
    is_notebook_run,
    join_cells,
    read_cells,
    with_todays_cells,
)
from relive.hindsight.plan import (
    UNREACHED,
    CostModel,
    Draft,
    RunHistory,
    SelectionTerms,
    describe_ending,
    select_iterations,
)
from relive.hindsight.replay_plan import BEYOND, HAS_VALUES, Plan, Question, assemble_plan
from relive.hindsight.replay_session import ReplaySession
from relive.hindsight.self_check_result import read_check
from relive.hindsight.workers import entry_file, merged_variables
from relive.instrument import RULES_VERSION
from relive.machine import usable_cpu_count
from relive.model import KILLED, RUNNING, RunRecord
from relive.record.process import RERUN_LOOP
from relive.store.catalog import Index, RunEntry, find_run
from relive.store.versions import VersionFiles

Edit = Callable[[Files], Files]  # lets the user change the patched files of a version
_NO_SCRIPT = {"interactive": "in a console, or by python -c", "command": "by a command"}
_VERSIONS_BETWEEN = 3  # versions that are compared on the way from an old one to the newest


def plan_replay(session: ReplaySession, question: Question, *, edit: Edit | None = None) -> Plan:
    """Plans the replay that answers a question. Nothing but the session's folder and the home's caches is written."""
    drafts, refusals = _DraftCollector(session, question, edit).collect()
    threads = question.threads or max((draft.history.threads or 1 for draft in drafts), default=1)
    workers = question.workers or max(1, usable_cpu_count() // max(1, threads // 2))
    drafts = _with_costs(session, drafts, workers)
    loading_s = max((_loading_s(session, question, draft) for draft in drafts), default=0.0)
    return assemble_plan(question, drafts, workers=workers, refusals=refusals, loading_s=loading_s)


def _with_costs(session: ReplaySession, drafts: list[Draft], workers: int) -> list[Draft]:
    """Adds to each draft how far it may be split, and what its replay is predicted to cost."""
    known = CostModel.read(session.home)
    parts = [max(1, -(-(workers // draft.history.width) // len(drafts))) for draft in drafts]
    is_shared = workers > 1 and sum(parts) > 1
    return [
        replace(draft, parts=most,
                costs=known.costs(draft.record.run, is_shared=is_shared, is_loaded=bool(draft.fit.modules)))
        for draft, most in zip(drafts, parts, strict=True)
    ]  # fmt: skip


def _loading_s(session: ReplaySession, question: Question, draft: Draft) -> float:
    """How long the libraries of a run take to load: once for all workers, and not if a fork server has them."""
    now = merged_variables(draft.history.ranks[0].variables, threads=question.threads or draft.history.threads)
    if not draft.fit.modules or session.starter.loaded_s(sys.executable, now, draft.fit.modules) is not None:
        return 0.0
    return draft.costs.loading_s or (1 - draft.costs.own_share) * draft.profile.before_s


class _DraftCollector:
    """Finds the candidate runs, and works out the patch and the selected iterations of each."""

    def __init__(self, session: ReplaySession, question: Question, edit: Edit | None) -> None:
        self._session = session
        self._home = session.home
        self._question = question
        self._edit = edit
        self._entries: list[RunEntry] = []
        self._trees: dict[str, Files] = {}
        self._versions: dict[str, Files] = {}
        self._readers: dict[str, VersionFiles] = {}
        self._open_readers = contextlib.ExitStack()
        self._edited: set[str] = set()
        self._patch_caches = {
            how: PatchCache(self._home, question.names, instrumented=how) for how in (False, True)
        }  # fmt: skip

    def collect(self) -> tuple[list[Draft], list[tuple[str, str]]]:
        """Returns a draft for each run to replay, and the reason for each other run."""
        with self._open_readers:
            return self._select(*self._draft_all())

    def _draft_all(self) -> tuple[list[Draft], list[tuple[str, str]]]:
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
        return drafts, refusals

    def _select(
        self, drafts: list[Draft], refusals: list[tuple[str, str]]
    ) -> tuple[list[Draft], list[tuple[str, str]]]:
        """Adds the selected iterations to each draft; a run of which none is selected is refused."""
        selected, question = [], self._question
        terms = SelectionTerms(question.names, question.where, again=question.again, beyond=question.beyond_the_end)
        others = []
        for draft, selection in zip(drafts, select_iterations(self._home, terms, drafts), strict=True):
            if selection is None:
                others.append(draft)
            else:
                selected.append(replace(draft, selection=selection))
        could = select_iterations(self._home, replace(terms, again=True), others) if others else []
        refusals += [
            (draft.record.run, _why_not(draft, has_values=selection is not None))
            for draft, selection in zip(others, could, strict=True)
        ]
        return selected, refusals

    def _candidates(self) -> list[RunEntry]:
        """The runs that the question names, or all that have ended."""
        entries = self._entries = Index(self._home).runs()
        if self._question.runs:
            return [find_run(entries, word) for word in self._question.runs]
        if not entries:
            raise NotFound("there are no runs yet; record one with `python train.py`")
        return [entry for entry in entries if entry.record.outcome != RUNNING]

    def _draft(self, entry: RunEntry) -> Draft:
        record = entry.record
        if started := _NO_SCRIPT.get(str(record.code.get("kind"))):
            raise NotFound(f"it was recorded {started}, which leaves no script to replay; move the code into a script")
        if not record.version:
            raise NotFound("it has no code version; `versions` was switched off, or git was missing")
        rules = (record.code.get("instrumented") or {}).get("rules", RULES_VERSION)
        if rules != RULES_VERSION:
            raise NotFound(
                f"it was recorded hands-free by rules {rules}; use a relive that has them, not {RULES_VERSION}"
            )
        history = self._session.history(record)
        if is_notebook_run(record) and (obstacle := find_obstacle(read_cells(history.recorded.lines))):
            raise NotFound(obstacle)
        check = read_check(self._home.run_folder(record.run))
        self._refuse_beyond_end(record, history)
        fit = self._fit(record, history)
        self._refuse_after_interruption(record, history, fit)
        return Draft(record, history, fit, is_distrusted=check is not None and check.is_failed)

    def _refuse_beyond_end(self, record: RunRecord, history: RunHistory) -> None:
        """Raises if the statements come after the loop in which a run ended, as far as the source tells."""
        if self._question.beyond_the_end or not history.is_cut_short:
            return
        endless = history.endless_loops
        if not endless:
            return
        fit = self._fit(record, history, endless)
        # An error runs handlers on its way out, which may hold the statements; a kill runs nothing.
        if fit.reach.is_only_after and (
            record.outcome in (KILLED, RUNNING)
            or not may_handle_errors({**self._version(record), **fit.patch.files}, fit.patch.added)
        ):
            raise NotFound(
                f"it {describe_ending(record, history)}; {', '.join(self._question.names)} is logged after the loop,"
                f" which it never reached; {BEYOND}"
            )

    def _refuse_after_interruption(self, record: RunRecord, history: RunHistory, fit: PatchFit) -> None:
        """Raises if the statements come after a cell of the run that was interrupted."""
        file = cell_file_name(record) if is_notebook_run(record) else ""
        if file in fit.patch.files:
            lines = {one.line for one in fit.patch.added if one.file == file}
            cells = read_cells(history.recorded.lines)
            if reason := find_interruption(cells, fit.patch.files[file], lines):
                raise NotFound(reason)

    # --- patches ------------------------------------------------------------------------------------------------

    def _fit(self, record: RunRecord, history: RunHistory, mains: frozenset[tuple[str, ...]] | None = None) -> PatchFit:
        """The patch for the version of a run: pinned by the user, cached, or made now."""
        tree = self._content_id(record)
        shape = script_shape(record, history)
        if mains is not None:
            shape = replace(shape, mains=mains)
        new = self._new_files(record)
        cache = self._patch_caches[_is_instrumented(record)]
        pinned = self._pinned(tree, record, new)
        if pinned is not None:
            return cache.of_patch(pinned, self._version(record), shape)
        return cache.find(tree, new, shape) or cache.make(
            tree, self._version(record), new, shape, between=lambda: self._versions_between(record)
        )

    def _content_id(self, record: RunRecord) -> str:
        """Identifies the source of a run: the tree of its version, and the cells of a notebook."""
        tree = str(record.code.get("tree"))
        return f"{tree} {stable_hash(self._cell_file(record))}" if is_notebook_run(record) else tree

    def _pinned(self, tree: str, record: RunRecord, new: Files) -> Patch | None:
        """The patch that the user chose for this version, now or earlier."""
        names, at, any_logger = self._question.names, self._question.at, _is_instrumented(record)
        pins = PinnedPatches(self._home, names)
        if at is not None:
            pins.write(tree, patch_at_line(self._version(record), new, names, at, any_logger=any_logger))
        pinned = pins.find(tree)
        if self._edit is not None and tree not in self._edited:
            old = self._version(record)
            patch = pinned or make_patch(old, new, names, any_logger=any_logger)
            edited = self._edit(patch.files or old)
            pins.write(tree, patch_from_files(old, edited, names, any_logger=any_logger))
            self._edited.add(tree)
            pinned = pins.find(tree)
        return pinned

    # --- source files -------------------------------------------------------------------------------------------

    def _versions_between(self, record: RunRecord) -> list[Files]:
        """A few versions between that of a run and the newest, the oldest first."""
        if is_notebook_run(record):  # its cells are compared with those of today, one by one
            return []
        later = {
            str(other.record.code.get("tree")): other.record
            for other in self._entries
            if other.record.started_us > record.started_us and other.record.code.get("root") == record.code.get("root")
            and other.record.version and other.record.code.get("tree") != record.code.get("tree")
        }  # fmt: skip
        if not later:
            return []
        versions = list(later.values())
        steps = range(1, _VERSIONS_BETWEEN + 1)
        return [self._version(versions[len(versions) * at // (_VERSIONS_BETWEEN + 1)]) for at in steps]

    def _new_files(self, record: RunRecord) -> Files:
        """The files that contain the statements: the working tree of the run's project, or another run's version.

        A statement that was given as text is inserted into either.
        """
        inserted = self._question.inserted
        if inserted is None:
            return self._existing_files(record)
        source = find_run(self._entries, inserted.run).record if inserted.run is not None else None
        owner = record.run if is_notebook_run(record) else record.code["root"]
        key = f"{owner} with a statement"
        if key not in self._trees:
            files = self._version(source) if source is not None else self._existing_files(record)
            self._trees[key] = insert_statement(files, inserted)
        return self._trees[key]

    def _existing_files(self, record: RunRecord) -> Files:
        if not is_notebook_run(record):
            return self._project_files(record)
        if record.run not in self._trees:
            cells = read_cells(self._session.history(record).recorded.lines)
            today = with_todays_cells(cells, self._todays_cells(record))
            self._trees[record.run] = {**self._project_files(record), cell_file_name(record): today}
        return self._trees[record.run]

    def _todays_cells(self, record: RunRecord) -> list[NotebookCell]:
        """The cells of the run that the question names, or of the notebook as it is saved now."""
        if self._question.source is not None:
            source = find_run(self._entries, self._question.source).record
            return cells_of_run(read_cells(self._session.history(source).recorded.lines))
        cells = read_cells(self._session.history(record).recorded.lines)
        return cells_of_notebook(record, cells, self._home.path.resolve())

    def _project_files(self, record: RunRecord) -> Files:
        if self._question.source is not None:
            return self._version(find_run(self._entries, self._question.source).record)
        root = str(record.code["root"])
        if root not in self._trees:
            if not os.path.isdir(root):
                raise NotFound(f"{root} is gone; name a run whose version has the statement with --from RUN")
            self._trees[root] = read_python_files(Path(root), home=self._home.path.resolve())
        return self._trees[root]

    def _version(self, record: RunRecord) -> Files:
        """The files of a run's version, and the cells of a notebook, read once."""
        if is_notebook_run(record):
            if record.run not in self._versions:
                self._versions[record.run] = {**self._read_version(record), **self._cell_file(record)}
            return self._versions[record.run]
        return self._read_version(record)

    def _cell_file(self, record: RunRecord) -> dict[str, str]:
        return {cell_file_name(record): join_cells(read_cells(self._session.history(record).recorded.lines))}

    def _read_version(self, record: RunRecord) -> Files:
        if record.version not in self._versions:
            repository = str(record.code["repository"])
            if repository not in self._readers:
                self._readers[repository] = self._open_readers.enter_context(VersionFiles(Path(repository)))
            self._versions[record.version] = self._readers[repository].read(record.version)
        return self._versions[record.version]


def script_shape(record: RunRecord, history: RunHistory) -> ScriptShape:
    """What the journals of a run say about its program."""
    profile = history.profile
    return ScriptShape(
        entry_file(record), profile.main_paths, profile.loop_paths, profile.has_framework_loop, history.imports,
        RERUN_LOOP if is_notebook_run(record) else None,
    )  # fmt: skip


def _why_not(draft: Draft, *, has_values: bool) -> str:
    """Why nothing of a run is selected; `has_values`: something would be, if its values were not there already."""
    reach = draft.fit.reach
    if reach.depth(draft.profile.main_paths) == NOWHERE:
        return "; ".join((*reach.reasons, UNREACHED))
    return HAS_VALUES if has_values else "the condition does not hold in any of its iterations"


def _is_instrumented(record: RunRecord) -> bool:
    return bool(record.code.get("instrumented"))
