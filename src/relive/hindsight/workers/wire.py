"""Everything that a replay sends to its workers and fork servers, and everything they send back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from relive.hindsight.notebooks import RecordedCell
from relive.hindsight.plan import Horizon, Segment, Skip, Visit
from relive.store import atomic_write

JOB_FILE, REPORT_FILE = "job.json", "report.json"
RECEIVE_BYTES = 1 << 16
Message = TypeVar("Message")


# --- parent and worker, through files in the worker's folder ---------------------------------------------------------


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A moment of the run of which a checkpoint exists: the end of a loop, or of one of its iterations."""

    loop: int
    iteration: int  # -1: the end of the loop
    place: str
    manifest: str
    last: int = -1  # the last iteration before it
    taken_s: float = 0.0  # wall clock; 0: not known


class Job(msgspec.Struct, frozen=True):
    """One segment of one run, as the worker of one rank executes it."""

    run: str
    home: str
    folder: str  # of this segment: its journals and its report
    script: str  # inside the tree made for it
    module: str | None
    cwd: str
    argv: list[str]
    search: list[str]  # folders of the project that come first on `sys.path`
    protected: list[str]  # folders that must not be written
    writable: list[str]  # folders inside those that may be written
    args: dict[str, Any]
    loops: list[tuple[int, str, int, int]]  # number, name, parent, parent's iteration, as recorded
    visits: list[Visit]
    skips: dict[int, Skip]
    ends: dict[int, str]
    stop: bool
    last_loop: int
    mains: list[int]
    argv0: str = ""  # what the script sees in `sys.argv[0]`; "": its path
    nth: int = 0  # which `with relive.run()` of the script it was, counted from 1; 0: none
    ending: dict[str, Any] | None = None  # the error that ended the run when it was recorded
    tree: str = ""  # the project, as it was
    instrumented: dict[str, Any] | None = None  # how a script that does not import relive was instrumented
    only: list[tuple[str, int, str]] = []  # file and line of each added statement, and the name it logs
    recorded: dict[str, str | None] = {}  # files that statements were added to, and their text without them
    rank: int = 0
    ranks: int = 1  # that are replayed together
    moments: list[Moment] = []  # with which the state is compared
    random_states: list[str] = []  # of the global generators: when the run began, then when libraries were imported
    digests: list[tuple[int, int, str, int]] = []  # loop, iteration, digest of the parameters at its end
    horizon: Horizon | None = None  # of the recorded rank; the replay ends there
    beyond: bool = False  # it goes on, and reports the values beyond
    names: list[str] = []  # that are asked for
    port: str = ""  # at which the recorded ranks met
    started_s: float = 0.0  # wall clock: the start of the script when it was recorded
    ended_s: float = 0.0  # wall clock: the end of the run
    outside: dict[str, dict[str, list[int]]] = {}  # by checkpoint: what had changed outside of the project
    beginnings: dict[str, int] = {}  # the lengths of files outside of the project when the run began to append to them
    root: str = ""  # the project of the run
    missing: list[str] = []  # files of the project that the run found in a state that nobody knows
    ignored_signals: list[str] = []  # by the process that was recorded, from its start on
    private: list[tuple[str, str]] = []  # folders that this worker has for itself, and those that the run had instead
    begun_s: float = 0.0  # wall clock: the begin of the replay, all of its segments together
    keeps_entry: bool = False  # the state at the entry of a loop is left as it is: added code has changed it
    cells: list[RecordedCell] = []  # of a notebook: the script has their text
    has_hashes: bool = False  # report the hashes of all memory at the end of each visited iteration

    @classmethod
    def of(cls, segment: Segment, **fields: Any) -> Job:
        return cls(
            visits=list(segment.visits), skips=dict(segment.skips), ends=dict(segment.ends), stop=segment.stop, **fields
        )

    @property
    def stdout(self) -> Path:
        return Path(self.folder) / "stdout"

    @property
    def stderr(self) -> Path:
        return Path(self.folder) / "stderr"

    def write(self) -> Path:
        path = Path(self.folder) / JOB_FILE
        path.write_bytes(msgspec.json.encode(self))
        return path

    @classmethod
    def read(cls, path: Path) -> Job:
        return msgspec.json.decode(path.read_bytes(), type=cls)

    @classmethod
    def read_if_there(cls, folder: Path) -> Job | None:
        """Returns the job of a worker's folder; None if it was not written, or not to its end."""
        try:
            return cls.read(folder / JOB_FILE)
        except (OSError, msgspec.DecodeError):
            return None


class StateCheck(msgspec.Struct, frozen=True):
    """The state of the script, compared with the recorded one at a moment of the run.

    The moment is the end of iteration `iteration` of `loop`, whether the replay passed it or restored its checkpoint;
    at the entry of a loop, `iteration` is -1.
    """

    loop: int
    iteration: int
    # "restored" (right after restoring a checkpoint), "entry" (of a main loop), or a recorded moment that the replay
    # passed: "iteration", "loop", "end".
    place: str
    agreed: int  # objects that compared equal
    differences: list[str] = []  # at most 20, by path: "model.fc.weight: other content"
    differing: int = 0  # how many differ in all
    position: int = 0  # of the next slot in the worker's journal (`Journal.written()`); 0: by loop and iteration

    @property
    def agrees(self) -> bool:
        return not self.differences and not self.differing


ALWAYS = 1 << 62


class OutsideRead(msgspec.Struct, frozen=True):
    """Something outside of the project that the script read, and that may not be what the run saw there."""

    text: str  # how, what, and why it is in doubt: "reads /data/best.pt, which has changed since the run began"
    path: str
    is_of_the_run: bool  # the run wrote it
    position: int  # of the next slot in the worker's journal
    checks: int  # how many comparisons of the state were made before; `ALWAYS` if none can end the doubt


class WorkerReport(msgspec.Struct):
    """How a segment went. The worker writes it when it ends by itself; a killed worker leaves none."""

    ok: bool
    error: str = ""  # the last line of the traceback, or what was wrong
    traceback: str = ""
    notes: list[str] = []
    unrestored: list[str] = []  # state that a checkpoint holds and the script had no object for
    damaged: list[str] = []  # the manifest of the checkpoint that could not be read
    needs_start: str = ""  # why a replay from a checkpoint can't be right; one from the start can
    iterations_s: list[tuple[int, int, float]] = []  # loop, iteration, seconds
    restored_bytes: int = 0
    restored_s: float = 0.0
    restores: int = 0
    first_restore_s: float = 0.0  # included in `restored_s`; the first restore starts with cold caches
    set_up_s: float = 0.0  # from the start of the process to the first restore, visit or skip
    ran_s: float = 0.0  # from the start of the process to the end
    written_ns: int = 0
    ended_early: bool = False  # where the run ended when it was recorded
    left_record: bool = False  # it came where the run never came
    unshown: list[tuple[int, int, str, int]] = []  # loop, iteration, name and ordinal of the first value in doubt
    checks: list[StateCheck] = []  # in the order in which they were made
    unknown: list[str] = []  # state that no checkpoint holds and that could not be compared: "path: reason"
    outside: list[OutsideRead] = []
    memory: list[tuple[int, int, dict[str, int]]] = []  # loop, iteration, hashes by path

    def write(self, folder: Path) -> None:
        self.written_ns = time.time_ns()
        atomic_write(folder / REPORT_FILE, msgspec.json.encode(self), durable=False)

    @classmethod
    def read(cls, folder: Path) -> WorkerReport | None:
        try:
            return msgspec.json.decode((folder / REPORT_FILE).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None


# --- client and fork server, through the command line and a socket ---------------------------------------------------


class ForkserverStart(msgspec.Struct, frozen=True):
    """The command line of a fork server: one JSON argument."""

    name: str  # of its abstract socket
    warm_s: float  # how long it stays after its last client has left
    started_s: float  # on the monotonic clock, which all processes of a machine share
    modules: tuple[str, ...]

    def to_argument(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_argument(cls, argument: str) -> ForkserverStart:
        return msgspec.json.decode(argument, type=cls)


class WorkerStart(msgspec.Struct, frozen=True):
    """A request to a fork server: fork a worker for the job in this file."""

    job: str
    cwd: str
    env: dict[str, str]
    out: str
    err: str


class ForkserverMessage(msgspec.Struct, frozen=True):
    """A fork server's message: its libraries are loaded, a worker has started, or a worker has ended with a code."""

    pid: int = 0
    job: str = ""
    code: int | None = None
    loaded_s: float | None = None  # how long loading took


def encode_line(message: WorkerStart | ForkserverMessage) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class LineDecoder(Generic[Message]):
    """Decodes messages of one type, one per line, from bytes that arrive in arbitrary pieces."""

    def __init__(self, message_type: type[Message]) -> None:
        self._decode = msgspec.json.Decoder(message_type).decode
        self._partial_line = b""

    def feed(self, data: bytes) -> list[Message]:
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        return [self._decode(line) for line in lines]
