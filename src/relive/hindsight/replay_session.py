"""The live side of a replay: its scratch folder, its worker processes, and the run histories it has read."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from relive.hindsight.plan import RunHistory, read_history
from relive.hindsight.workers import WorkerStarter
from relive.model import RunRecord
from relive.record.process import read_launch_context
from relive.store import Home, atomic_write
from relive.store.journal import process_start_stamp

PLAN_FILE = "plan.json"


class ReplaySession:
    """Owns everything that a replay opens, so that a `Plan` is data only.

    Planning asks the session which libraries are loaded already; execution starts workers through it. The scratch
    folder holds the materialised versions and is deleted with the session, as are the temporary files of its workers.
    """

    def __init__(self, home: Home, *, warm_s: float | None = None) -> None:
        """`warm_s`: how long a fork server outlives the session; None takes the setting `warm_seconds`."""
        self.home = home
        self.begun_s = time.time()
        self.folder = home.replays / f"{os.getpid()}-{os.urandom(4).hex()}"
        self.starter = WorkerStarter(read_launch_context().settings.warm_seconds if warm_s is None else warm_s)
        self._temporary: list[Path] = []
        self._histories: dict[tuple[str, frozenset[str]], RunHistory] = {}

    def history(self, record: RunRecord, *, without: Collection[str] = ()) -> RunHistory:
        """Returns the history of a run, read once; checkpoints whose manifest is in `without` are ignored."""
        key = record.run, frozenset(without)
        if key not in self._histories:
            self._histories[key] = read_history(self.home, record, without=without)
        return self._histories[key]

    def note_plan(self, plan: Any) -> None:
        """Leaves a note of what is about to be executed, and by which process, in case that this one is killed."""
        note = {"pid": os.getpid(), "started": process_start_stamp(os.getpid()), "plan": plan}
        try:
            data = msgspec.json.encode(note, enc_hook=_as_plain)
        except (UnicodeEncodeError, TypeError):  # a source that is no valid text: a kill loses what was computed
            return
        atomic_write(self.folder / PLAN_FILE, data, durable=False)

    def looking_at(self, folder: Path) -> ReplaySession:
        """Returns a session for what is in the folder of another one; what it reads of runs is about to change."""
        there = copy.copy(self)
        there.folder, there._histories = folder, {}
        return there

    def make_temporary_folder(self) -> Path:
        """Makes a folder for the temporary files of one worker. Its path is short: sockets are made in it, whose

        addresses have at most 107 bytes. `multiprocessing` hands tensors from one process to another through them.
        """
        folder = Path(tempfile.mkdtemp(prefix="relive-"))
        self._temporary.append(folder)
        return folder

    def __enter__(self) -> ReplaySession:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.starter.close()
        finally:
            for folder in (self.folder, *self._temporary):
                shutil.rmtree(folder, ignore_errors=True)


def _as_plain(value: Any) -> Any:
    """Ranges and sets of iterations as lists; numbers of numpy as numbers."""
    return value.item() if hasattr(value, "item") else list(value)
