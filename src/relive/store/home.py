"""Where things lie inside a home folder, and which runs are there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from relive.settings import Settings, load

RUN_ID_BYTES = 6
REPLAYS = 1 << 30  # added to the number of a replay, it stands where the pid of a child process would


class JournalName(NamedTuple):
    """The name of a journal inside its run's folder: `0`, `3` (rank), `0-4711` (a child process), `0-r2` (a replay)."""

    rank: int = 0
    process: int = 0

    @property
    def replay(self) -> int:
        """The number of the replay that made it; 0 for what was recorded."""
        return max(0, self.process - REPLAYS)

    @property
    def stem(self) -> str:
        if self.replay:
            return f"{self.rank}-r{self.replay}"
        return f"{self.rank}-{self.process}" if self.process else str(self.rank)

    @classmethod
    def parse(cls, stem: str) -> JournalName | None:
        rank, _, process = stem.partition("-")
        number = process.removeprefix("r")
        if not rank.isdecimal() or (process and not number.isdecimal()):
            return None
        return cls(int(rank), int(number or 0) + (REPLAYS if process.startswith("r") else 0))

    @classmethod
    def of_replay(cls, number: int, rank: int = 0) -> JournalName:
        return cls(rank, REPLAYS + number)


class Home:
    """A folder that holds runs, chunks and what is derived from them."""

    __slots__ = ("_settings", "path")

    # Written out: a start would wait for dataclasses, and for them alone.
    def __init__(self, path: Path, settings: Settings | None = None) -> None:
        self.path = path
        self._settings = settings

    @property
    def settings(self) -> Settings:
        """The settings that this home goes by: those it was found with, or those beside it."""
        if self._settings is None:
            self._settings = load(self.path.absolute().parent)
        return self._settings

    def identity(self) -> str:
        """Tells this home from every other, a copy of it included. Made when it is first asked for."""
        path = self.path / "id"
        if not path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".id.{os.getpid()}")
            partial.write_text(os.urandom(16).hex())
            try:
                os.link(partial, path)  # the first to come names it
            except FileExistsError:
                pass
            finally:
                partial.unlink()
        return f"{path.read_text()}-{path.stat().st_ino:x}"  # a copy of the file is another file

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
        """Where replays work; nothing in it outlives them."""
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
        """Make the folder; it keeps itself out of the user's git."""
        self.runs.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")

    def run_folder(self, run: str) -> Path:
        return self.runs / run

    def new_run(self) -> str:
        """Reserve the folder of a new run and give its id."""
        while True:
            run = os.urandom(RUN_ID_BYTES).hex()
            try:
                self.run_folder(run).mkdir()
            except FileExistsError:
                continue
            return run

    def run_ids(self) -> list[str]:
        try:
            with os.scandir(self.runs) as entries:
                return [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []


def journals_in(folder: Path) -> Iterator[tuple[JournalName, Path]]:
    """The journals of a run: their names and the path without suffix, canonical rank first."""
    try:
        stems = {name.removesuffix(".slots") for name in os.listdir(folder) if name.endswith(".slots")}
    except (FileNotFoundError, NotADirectoryError):
        return
    found = [(name, folder / stem) for stem in stems if (name := JournalName.parse(stem)) is not None]
    yield from sorted(found, key=lambda pair: (pair[0].rank, pair[0].process))
