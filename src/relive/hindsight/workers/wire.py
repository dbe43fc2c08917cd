"""What a worker is told: which run, which part of it, and where it finds and leaves things."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from relive.hindsight.plan import Segment, Skip, Visit

FILE, REPORT = "job.json", "report.json"


class Job(msgspec.Struct, frozen=True):
    """One segment of one run, as the worker needs it. It is read from a file in the worker's own folder."""

    run: str
    home: str
    folder: str  # of this segment: its journals and its report
    script: str  # inside the tree made for it
    module: str | None
    cwd: str
    argv: list[str]
    search: list[str]  # folders of the project that come first when modules are imported
    protected: list[str]  # what must not be written
    writable: list[str]  # what may be, although it lies inside
    args: dict[str, Any]
    loops: list[tuple[int, str, int, int]]  # number, name, parent, parent's iteration, as recorded
    visits: list[Visit]
    skips: dict[int, Skip]
    ends: dict[int, str]
    stop: bool
    last_loop: int
    mains: list[int]
    nth: int = 0  # the how manieth `with relive.run()` of the script it was; 0: none
    ending: dict[str, Any] | None = None  # the error that ended the run when it was recorded
    tree: str = ""  # the project, as it was
    instrumented: dict[str, Any] | None = None  # how it was rewritten, for a script that knows nothing of relive
    only: list[tuple[str, int, str]] = []  # added statements, and the name that counts of what they tell
    rank: int = 0
    ranks: int = 1  # that are replayed together

    @classmethod
    def of(cls, segment: Segment, **told: Any) -> Job:
        return cls(
            visits=list(segment.visits), skips=dict(segment.skips), ends=dict(segment.ends), stop=segment.stop, **told
        )

    def write(self) -> Path:
        path = Path(self.folder) / FILE
        path.write_bytes(msgspec.json.encode(self))
        return path

    @classmethod
    def read(cls, path: Path) -> Job:
        return msgspec.json.decode(path.read_bytes(), type=cls)


class WorkerReport(msgspec.Struct):
    """How a segment went; written by the worker when it ends by itself."""

    ok: bool
    error: str = ""  # the last line of the traceback, or what was wrong
    traceback: str = ""
    notes: list[str] = []
    unrestored: list[str] = []  # what a checkpoint held and was not there to be put back
    damaged: list[str] = []  # the checkpoint that could not be read, by its manifest
    iterations_s: list[tuple[int, int, float]] = []  # loop, iteration, seconds
    restored_bytes: int = 0
    restored_s: float = 0.0
    restores: int = 0
    first_restore_s: float = 0.0  # of them, the first: it finds nothing loaded and nothing open
    set_up_s: float = 0.0  # from the start of the process to the first restore, visit or skip
    ran_s: float = 0.0  # from there to the end
    written_ns: int = 0
    ended_early: bool = False  # by the error that ended the run when it was recorded

    def write(self, folder: Path) -> None:
        self.written_ns = time.time_ns()
        part = folder / (REPORT + ".part")
        part.write_bytes(msgspec.json.encode(self))
        part.rename(folder / REPORT)

    @classmethod
    def read(cls, folder: Path) -> WorkerReport | None:
        try:
            return msgspec.json.decode((folder / REPORT).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None


class WorkerStart(msgspec.Struct, frozen=True):
    """What a worker is started with: one line from who asks for it."""

    job: str
    cwd: str
    env: dict[str, str]
    out: str
    err: str


class ForkserverMessage(msgspec.Struct, frozen=True):
    """One line to who asks: all is loaded (and how long that took), a worker has begun, or has ended with a code."""

    pid: int = 0
    job: str = ""
    code: int | None = None
    loaded_s: float | None = None
