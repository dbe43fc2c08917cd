"""Merges what the workers of killed replays had computed, so that asking again computes only what is missing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from relive.errors import ReliveError
from relive.hindsight.replay_plan import Case, Plan
from relive.hindsight.replay_session import PLAN_FILE, ReplaySession
from relive.hindsight.workers import Job, RankTask, Task, WorkerReport
from relive.store import is_trusted
from relive.store.journal import is_process_alive

if TYPE_CHECKING:
    from relive.hindsight.execution import Execution

_OLD_S = 3_600


class PlanNote(msgspec.Struct, frozen=True):
    """A plan that is being executed, or was when its process was killed, as `ReplaySession.note_plan` left it."""

    pid: int
    started: str | None
    plan: Plan

    @property
    def is_abandoned(self) -> bool:
        return not is_process_alive(self.pid, self.started)

    @classmethod
    def read(cls, folder: Path) -> PlanNote | None:
        try:
            return msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None


def take_up_killed(session: ReplaySession) -> int:
    """Stores the values of killed replays of this home; returns how many there were."""
    home = session.home
    if not home.replays.is_dir() or not is_trusted(home):
        return 0
    added = 0
    for folder in sorted(home.replays.iterdir()):
        if folder == session.folder:
            continue
        note = PlanNote.read(folder)
        if note is None:
            _remove_if_old(folder)
            continue
        if not note.is_abandoned:
            continue
        with _claimed(folder) as is_ours:
            if is_ours:
                added += _take_up(session, folder, note)
                shutil.rmtree(folder, ignore_errors=True)
    return added


def _remove_if_old(folder: Path) -> None:
    """Removes what a killed replay left before it had a plan; others may be about to write theirs."""
    pid = folder.name.partition("-")[0]
    is_running = not pid.isdecimal() or is_process_alive(int(pid), None)
    if not is_running and time.time() - folder.stat().st_mtime > _OLD_S:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Whether this process is the one that takes up a folder; the lock ends with the process."""
    try:
        descriptor = os.open(folder / "claim", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # another process has taken it up and removed it, or the home can't be written
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield PlanNote.read(folder) is not None
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _take_up(session: ReplaySession, folder: Path, note: PlanNote) -> int:
    from relive.hindsight.execution import Execution

    there = session.looking_at(folder)  # where the versions with their statements are
    execution = Execution(there, note.plan, lambda _tasks: None, offline=True, rebuild=False)
    added = 0
    for case in note.plan.cases:
        try:
            added += _merge_case(execution, case, folder)
        except (ReliveError, OSError):  # a run that was removed since, or files that were half written
            continue
    return added


def _merge_case(execution: Execution, case: Case, folder: Path) -> int:
    from relive.hindsight.execution import CaseReplay

    replay = CaseReplay(case, execution.history(case))
    for base in sorted(folder.glob(f"{case.record.run}-*-*")):
        ranks = [
            RankTask(job, {}, not rank.is_finished, WorkerReport.read(path))
            for rank in replay.history.ranks
            if (path := base / "journals" / str(rank.number)).is_dir() and (job := Job.read_if_there(path)) is not None
        ]
        if len(ranks) == len(replay.history.ranks):
            replay.tasks.append(_ended_task(case, ranks))
    usable = [task for task in replay.tasks if not task.damaged and not task.needs_start]
    replay.tasks = usable
    if not usable:
        return 0
    reader = execution.read(replay)
    if reader.answer.has_restore_faults:  # such a checkpoint is passed over, and its values computed anew
        return 0
    execution.merge(replay, reader)
    return reader.answer.added


def _ended_task(case: Case, ranks: list[RankTask]) -> Task:
    task = Task(lambda: ranks, "", 0.0, case.record.run, width=len(ranks), ranks=ranks, attempts=1)
    task.failures.append("the replay was killed")
    return task
