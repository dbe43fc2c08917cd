"""The layout of a home folder: where each kind of file is, how journals are named, which runs exist."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from relive.errors import Damaged, NotFound
from relive.settings import Settings, load
from relive.store.durable_files import write_once

RUN_ID_BYTES = 6
# The `process` of a replay's journal is this offset plus the number of the replay; pids are always smaller.
REPLAY_OFFSET = 1 << 30
_OF_NEW_HOMES = frozenset({"id", "made", ".gitignore", "launches", "lost+found"})  # may be there before the first run


class JournalName(NamedTuple):
    """The name of a journal inside its run's folder: `0`, `3` (rank), `0-4711` (a child process), `0-r2` (a replay)."""

    rank: int = 0
    process: int = 0

    @property
    def replay(self) -> int:
        """The number of the replay that wrote this journal; 0 for a recorded journal."""
        return max(0, self.process - REPLAY_OFFSET)

    @property
    def stem(self) -> str:
        """The file name without suffix."""
        if self.replay:
            return f"{self.rank}-r{self.replay}"
        return f"{self.rank}-{self.process}" if self.process else str(self.rank)

    @classmethod
    def parse(cls, stem: str) -> JournalName | None:
        """Parses a file name without suffix; None if it isn't the name of a journal."""
        rank, _, process = stem.partition("-")
        number = process.removeprefix("r")
        if not rank.isdecimal() or (process and not number.isdecimal()):
            return None
        return cls(int(rank), int(number or 0) + (REPLAY_OFFSET if process.startswith("r") else 0))

    @classmethod
    def of_replay(cls, number: int, rank: int = 0) -> JournalName:
        return cls(rank, REPLAY_OFFSET + number)


class Home:
    """A folder that holds runs, chunks and the data derived from them."""

    __slots__ = ("_settings", "path")

    # Not a dataclass: importing `dataclasses` would slow down the start of every run, and nothing else there needs it.
    def __init__(self, path: Path, settings: Settings | None = None) -> None:
        self.path = path
        self._settings = settings

    @property
    def settings(self) -> Settings:
        """The settings of this home: those passed to the constructor, or those of the folder that contains it."""
        if self._settings is None:
            self._settings = load(self.path.absolute().parent)
        return self._settings

    def identity(self) -> str:
        """Returns an id that no other home has, not even a copy of this one. Created on first use."""
        path = self.path / "id"
        if not path.exists():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_once(path, os.urandom(16).hex().encode())  # if another process was first, its id is used
        word = path.read_bytes()
        if len(word) != 32 or word.strip(b"0123456789abcdef"):
            remedy = "restore it from a backup, or remove it: the home then counts as a new one"
            raise Damaged(f"{path} is not what was written; {remedy}")
        return f"{word.decode()}-{path.stat().st_ino:x}"  # a copied file has another inode

    def require_runs(self, remedy: str) -> Home:
        """Returns the home; raises if nothing was ever recorded in it, since reading makes no home."""
        if not self.runs.is_dir():
            raise NotFound(f"no runs in {self.path}; record one with `python train.py`, or {remedy}")
        return self

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def chunks(self) -> Path:
        return self.path / "chunks"

    @property
    def packs(self) -> Path:
        return self.chunks / "packs"

    @property
    def index(self) -> Path:
        return self.path / "index"

    @property
    def replays(self) -> Path:
        """The working folder of replays; a replay deletes its files when it ends."""
        return self.path / "replays"

    @property
    def memo(self) -> Path:
        return self.path / "memo.sqlite"

    @property
    def registry(self) -> Path:
        return self.path / "registry"

    @property
    def launches(self) -> Path:
        return self.path / "launches"

    def create(self) -> None:
        """Creates the folder, with a `.gitignore` that keeps it out of the user's repository; others can't read it."""
        # The parents get the usual mode. A home that exists keeps its own: its owner may share it.
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.runs.exists():
            self._mark_if_empty()
            self.runs.mkdir(exist_ok=True)  # last: as long as it is missing, the home counts as new
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")

    def _mark_if_empty(self) -> None:
        """A home that is empty when this user begins to use it is the user's own, see `relive trust`."""
        if not set(os.listdir(self.path)) <= _OF_NEW_HOMES:
            return
        from relive.store.home_mark import mark_home

        try:
            mark_home(self.path, self.identity())
        except OSError:  # a disk that is full: recording goes on, and the home has to be trusted by `relive trust`
            return

    def run_folder(self, run: str) -> Path:
        return self.runs / run

    def new_run(self) -> str:
        """Creates the folder of a new run and returns the run's id."""
        while True:
            run = os.urandom(RUN_ID_BYTES).hex()
            try:
                self.run_folder(run).mkdir()
            except FileExistsError:
                continue
            return run

    def run_ids(self) -> list[str]:
        """Returns the ids of all runs, in no particular order."""
        try:
            with os.scandir(self.runs) as entries:
                return [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []


def list_journals(folder: Path) -> Iterator[tuple[JournalName, Path]]:
    """Yields the journals in a run's folder as (name, path without suffix), canonical rank first."""
    try:
        files = set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    stems = {file.rpartition(".")[0] for file in files if file.endswith((".slots", ".lines"))}
    names = ((JournalName.parse(stem), stem) for stem in stems)
    # The lines of a replay count once its slots exist; any other journal has both.
    found = [(name, folder / stem) for name, stem in names if name and (not name.replay or f"{stem}.slots" in files)]
    yield from sorted(found, key=lambda pair: (pair[0].rank, pair[0].process))
