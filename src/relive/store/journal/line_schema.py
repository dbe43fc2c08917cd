"""The schema of journal lines: one class for each kind, used by writers, readers and the server's validation.

To add a kind, add a class here, with the tag that `k` has on disk. Fields without a default are those that readers rely
on. Fields that a line may lack are `UNSET`, which is false and not written. Readers skip unknown kinds and fields.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any, TypeVar, Union

import msgspec
from msgspec import UNSET, Meta, UnsetType

from relive.model import MAX_NAME_CHARS, escape_surrogates

JOURNAL_FORMAT = 2  # lines and slots have checksums since format 2
MAX_RANKS = 1_000_000  # readers make tables of this size
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Rank = Annotated[int, Meta(ge=0, le=MAX_RANKS)]
Word32 = Annotated[int, Meta(ge=0, lt=1 << 32)]  # a slot has room for this much
NameId = Annotated[int, Meta(ge=1, lt=1 << 24)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
SUM = b',"sum":"%08x"}'  # ends every line: CRC-32 of all that comes before it
Encoded = Any  # a value in the form that `value_codec` gives it


class JournalLine(msgspec.Struct, tag_field="k", kw_only=True, frozen=True):
    """What every line has: its position, its time, and the iteration that it belongs to."""

    v: Annotated[int, Meta(ge=1, le=JOURNAL_FORMAT)] = JOURNAL_FORMAT
    seq: Annotated[int, Meta(ge=1, lt=1 << 40)]  # the slot at this position is of kind LINE
    t: Count  # the monotonic clock, in ns
    loop: Word32
    i: Word32


class EntryPointFields(msgspec.Struct, kw_only=True, frozen=True):
    """What was started: a script, a module, a notebook, a console or a command."""

    kind: str | None = None
    script: str | None = None
    module: str | None = None
    root: str | None = None
    cwd: str | None = None
    instrumented: dict[str, Any] | UnsetType | None = UNSET  # of a hands-free run: how its source was rewritten


class ErrorFields(msgspec.Struct, kw_only=True, frozen=True):
    """The exception that ended a run."""

    type: str = ""
    message: str = ""
    place: str | None = None
    traceback: str | UnsetType = UNSET


# --- the first line of a journal -------------------------------------------------------------------------------------


class JournalStarted(JournalLine, kw_only=True, frozen=True):
    """The first line of any journal: the wall clock and the monotonic clock at one moment."""

    wall_ns: Count
    clock_ns: Count

    @property
    def clock_to_wall_ns(self) -> int:
        return self.wall_ns - self.clock_ns


class RunStarted(JournalStarted, tag="run", kw_only=True, frozen=True):
    """A rank begins to record."""

    run: str
    name: Name = ""
    project: Name = ""
    rank: Rank = 0
    world_size: Rank = 1
    local_rank: Rank | None = None
    nth: Count | UnsetType = UNSET  # counts the `with relive.run()` blocks of a process; 0 for a run without one
    tags: dict[str, Encoded] | None = None
    entry: EntryPointFields | None = None
    parent: str | None = None
    argv: list[str] = []
    environment: dict[str, Any] | None = None
    host: str | None = None
    pid: Count | None = None
    start: str | None = None  # tells the process from a later one with the same pid
    since_start_s: float | UnsetType | None = UNSET


class ChildStarted(JournalStarted, tag="child", kw_only=True, frozen=True):
    """A child process of a rank begins to record."""

    pid: Count
    parent: Count | None = None  # its parent's pid


class ReplayStarted(JournalStarted, tag="replay", kw_only=True, frozen=True):
    """A replay begins to record values, in its worker or merged into the run."""

    parent: Count = 0
    run: str | UnsetType = UNSET  # of a worker's journal
    number: Count | UnsetType = UNSET  # of a merged journal, which has the following fields too: counts the replays
    names: list[str] | UnsetType = UNSET  # that were asked for
    patch: str | UnsetType = UNSET  # what was added to the version, as a diff
    verdict: str | UnsetType | None = UNSET  # the worst of its values; older journals: of all of them
    verdicts: dict[str, dict[str, Count]] | UnsetType = UNSET  # how many values of each name have which verdict
    causes: list[str] | UnsetType = UNSET  # of verdicts that are not the best
    reproduced: Count | UnsetType = UNSET  # recorded values that came out the same
    mismatches: Count | UnsetType = UNSET
    depth: str | UnsetType = UNSET
    resume: str | UnsetType = UNSET
    version: str | UnsetType | None = UNSET
    beyond: bool | UnsetType = UNSET  # its values never happened: the run ended before


# --- values ----------------------------------------------------------------------------------------------------------


class NameDefined(JournalLine, tag="name", kw_only=True, frozen=True):
    """Gives a name its number. A name may have two, if two threads logged it at once."""

    id: NameId
    name: Name


class ValueLogged(JournalLine, tag="log", kw_only=True, frozen=True):
    """A logged value that does not fit into a slot."""

    name: NameId
    value: Encoded


class VerdictGiven(JournalLine, tag="verdict", kw_only=True, frozen=True):
    """In a merged journal: the verdict on the values of one name whose slots are in these ranges."""

    name: NameId
    verdict: str
    slots: list[tuple[Count, Count]]  # positions of the first and the last one
    why: list[str] | UnsetType = UNSET


class LoopItem(JournalLine, tag="item", kw_only=True, frozen=True):
    """The item of an iteration that is not an integer."""

    item: Encoded


class Arg(JournalLine, tag="arg", kw_only=True, frozen=True):
    """A setting of the run."""

    name: Name
    value: Encoded = None
    default: Encoded = None
    origin: str | None = None


class Tag(JournalLine, tag="tag", kw_only=True, frozen=True):
    """A tag that was set after the run began; the last one of a name counts."""

    name: Name
    value: Encoded


# --- provenance ------------------------------------------------------------------------------------------------------


class VersionCaptured(JournalLine, tag="version", kw_only=True, frozen=True):
    """The code version was stored."""

    id: str | None
    tree: str | UnsetType | None = UNSET
    branch: str | UnsetType | None = UNSET
    head: str | UnsetType | None = UNSET
    user_branch: str | UnsetType | None = UNSET
    dirty: bool | UnsetType | None = UNSET
    repository: str | UnsetType | None = UNSET
    root: str | UnsetType | None = UNSET
    large: list[dict[str, Any]] | UnsetType = UNSET  # files that are identified by their digest and not stored
    left_out: Any = UNSET


class DataFields(JournalLine, kw_only=True, frozen=True):
    """What is known of data: where it is and what it contains."""

    path: str | UnsetType | None = UNSET
    kind: str | UnsetType | None = UNSET
    digest: str | UnsetType | None = UNSET
    size_bytes: Count | UnsetType | None = UNSET
    detail: dict[str, Any] | UnsetType | None = UNSET
    role: str | UnsetType | None = UNSET


class DataDeclared(DataFields, tag="data", kw_only=True, frozen=True):
    """Data that the script declared with `relive.data`."""

    name: Name


class InputRead(DataFields, tag="read", kw_only=True, frozen=True):
    """A file that the run was seen reading."""

    path: str


class InputOpened(JournalLine, tag="opened", kw_only=True, frozen=True):
    """In a child's journal: a file that the child opened."""

    path: str


class DataVersion(JournalLine, tag="data_version", kw_only=True, frozen=True):
    """The data version as far as it is known; the last one counts."""

    id: str | None


class PackagesInstalled(JournalLine, tag="packages", kw_only=True, frozen=True):
    """The installed packages with their versions."""

    packages: dict[str, str]


class ModulesImported(JournalLine, tag="modules", kw_only=True, frozen=True):
    """Source files of the project that were imported since the line before of this kind."""

    files: list[str]  # relative to the root of the project
    variables: dict[str, str] | UnsetType = UNSET  # environment variables that they name, as the process got them


class CellBegun(JournalLine, tag="cell", kw_only=True, frozen=True):
    """A cell of a notebook was executed. When a run begins, those that were executed before it are recorded, too."""

    number: Count  # as the notebook shows it: `In [4]`
    source: str
    id: str | UnsetType = UNSET  # of the cell in the notebook, which stays when its text changes
    python: str | UnsetType = UNSET  # what IPython made of it, if that differs
    before: bool | UnsetType = UNSET  # it was executed before the run began
    error: str | UnsetType = UNSET  # of such a cell: the type of the error that ended it, if that is known


class CellEnded(JournalLine, tag="cell_end", kw_only=True, frozen=True):
    """A cell of a notebook ended, maybe by an error of this type."""

    number: Count
    error: str = ""


class ArtifactKept(JournalLine, tag="artifact", kw_only=True, frozen=True):
    """Something that the run keeps. `chunks` are its pieces in order; a folder has `files` with pieces each."""

    name: Name
    kind: str
    size_bytes: Count
    digest: str
    chunks: list[str] = []
    path: str | UnsetType | None = UNSET
    files: list[dict[str, Any]] | UnsetType = UNSET
    type: str | UnsetType | None = UNSET


# --- checkpoints, remembered calls, the end ------------------------------------------------------------------------


class CheckpointingBegun(JournalLine, tag="checkpointing", kw_only=True, frozen=True):
    """`relive.checkpointing` was entered with these objects."""

    objects: dict[str, str] = {}
    threads: Count | None = None
    led: dict[str, Any] | UnsetType | None = UNSET  # a framework runs the loop: its name under `by`


class CheckpointTaken(JournalLine, tag="checkpoint", kw_only=True, frozen=True):
    """A checkpoint is on disk, at the end of this loop or of its iteration `i`."""

    place: str
    name: Name
    manifest: Hash
    bytes: Count
    new_bytes: Count
    stall_s: float
    write_s: float
    left_out: list[str] | UnsetType = UNSET
    exhausted: bool | UnsetType = UNSET
    plainly: bool | UnsetType | None = UNSET
    left_around: list[str] | UnsetType = UNSET
    unknown: list[str] | UnsetType = UNSET  # state that could not be looked at; absent before manifests of format 2
    taken_ns: Count | UnsetType = UNSET  # the wall clock when the state was taken
    outside: dict[str, list[int]] | UnsetType = UNSET  # files that changed there, with their size, times and inode


class RandomStates(JournalLine, tag="random", kw_only=True, frozen=True):
    """The global random generators when the run began, or when a library with some was imported; for replays."""

    states: str  # of `random`, numpy and torch, as far as they were loaded; marshalled, in base 64


class StateDigest(JournalLine, tag="digest", kw_only=True, frozen=True):
    """A hash of the parameters at the end of an iteration of the main loop."""

    digest: str
    leaves: Count  # tensors that were hashed


class CallRemembered(JournalLine, tag="memo", kw_only=True, frozen=True):
    """A call of a memoized function: a hit, or a miss that was computed."""

    function: str
    key: str
    outcome: str
    from_: str | UnsetType | None = msgspec.field(default=UNSET, name="from")
    saved_s: float | UnsetType | None = UNSET
    kind: str | UnsetType | None = UNSET
    kept: str | UnsetType | None = UNSET
    took_s: float | UnsetType | None = UNSET
    found: Any = UNSET


class IterationReplayed(JournalLine, tag="turn", kw_only=True, frozen=True):
    """In a worker's journal: an iteration was replayed to its end."""


class WarningGiven(JournalLine, tag="warning", kw_only=True, frozen=True):
    """Something that could not be recorded."""

    message: str
    slug: str | UnsetType = UNSET


class RecordsLost(JournalLine, tag="lost", kw_only=True, frozen=True):
    """What could not be recorded, how often, why, and since when; the last line of a `what` and `why` counts."""

    what: str
    why: str
    count: Count
    wall_ns: int


class SlotsSealed(JournalLine, tag="seal", kw_only=True, frozen=True):
    """The checksum of `count` slots from slot `first` on."""

    first: Annotated[int, Meta(ge=1, lt=1 << 40)]
    count: Annotated[int, Meta(ge=1, lt=1 << 40)]
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]  # XXH3, 64 bits
    last: bool = False  # the journal was closed: no slot follows, not even that of this line


class RunEnded(JournalLine, tag="end", kw_only=True, frozen=True):
    """The run ended by itself."""

    outcome: str
    error: ErrorFields | None = None
    wall_ns: int | UnsetType = UNSET  # whatever the clock says: a script may have replaced it


@lru_cache(maxsize=1)
def kinds() -> dict[str, type[JournalLine]]:
    """All kinds of lines, by their tag."""
    return {str(kind.__struct_config__.tag): kind for kind in _leaf_classes(JournalLine)}


def _leaf_classes(kind: type[JournalLine]) -> Iterator[type[JournalLine]]:
    for inner in kind.__subclasses__():
        yield from _leaf_classes(inner) if inner.__subclasses__() else (inner,)


@lru_cache(maxsize=1)
def line_decoder() -> Callable[[bytes], JournalLine]:
    """Returns the decoder of lines; it raises `msgspec.ValidationError` for one that is not of the schema."""
    return msgspec.json.Decoder(Union[tuple(kinds().values())]).decode  # noqa: UP007 - no `|` over a tuple


UNKNOWN_START = JournalStarted(seq=1, t=0, loop=1, i=0, wall_ns=0, clock_ns=0)  # of a journal whose first line is lost

_to_json = msgspec.json.Encoder().encode
L = TypeVar("L", bound=JournalLine)


def lines_of(kind: type[L], lines: Iterable[JournalLine]) -> list[L]:
    """The lines of one kind, in order."""
    return [line for line in lines if isinstance(line, kind)]


def encode_line(line: JournalLine) -> bytes:
    """Returns a line with its checksum and a newline."""
    try:
        return with_sum(_to_json(line))
    except UnicodeEncodeError:  # for example a path that isn't valid Unicode
        return with_sum(_to_json(escape_surrogates(msgspec.to_builtins(line))))


def with_sum(row: bytes) -> bytes:
    """Returns a JSON object with the field `sum` as its last one, and a newline."""
    return row[:-1] + SUM % zlib.crc32(row[:-1]) + b"\n"
