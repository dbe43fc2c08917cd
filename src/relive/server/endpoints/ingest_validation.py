"""Whether bytes from outside may become part of a journal: every line and slot must be what readers rely on."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from relive.model import MAX_NAME_CHARS
from relive.server.http import HttpError
from relive.store.journal import SLOT_BYTES, SLOTS_MAGIC
from relive.store.sync import JournalRange

MAX_NESTING = 100
MAX_LINE_BYTES = 16 << 20
LOOPS_AHEAD = 4_000_000  # a loop's number may be so much higher than its slot's: readers make tables of that size

Count = Annotated[int, Meta(ge=0, le=(1 << 62))]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
Word = Annotated[str, Meta(max_length=10_000)]


class AnyLine(msgspec.Struct):
    """What every line has."""

    v: Annotated[int, Meta(ge=1, le=1)]
    seq: Annotated[int, Meta(ge=1, lt=(1 << 40))]
    t: Count
    k: Annotated[str, Meta(max_length=40)]
    loop: Annotated[int, Meta(ge=0, lt=(1 << 32))]
    i: Annotated[int, Meta(ge=0, lt=(1 << 32))]


class LineEntry(msgspec.Struct):
    kind: Word | None = None
    script: Word | None = None
    module: Word | None = None
    root: Word | None = None
    cwd: Word | None = None


class RunLine(AnyLine):
    run: str
    wall_ns: Count
    clock_ns: Count
    name: Name = ""
    project: Name = ""
    rank: Count = 0
    world_size: Count = 1
    tags: dict[str, Any] | None = None
    entry: LineEntry | None = None
    parent: Word | None = None
    argv: list[str] = []
    environment: dict[str, Any] | None = None
    host: Word | None = None
    pid: Count | None = None
    start: Word | None = None


class ChildLine(AnyLine):
    wall_ns: Count
    clock_ns: Count
    pid: Count
    parent: Count | None = None


class ReplayLine(AnyLine):
    wall_ns: Count
    clock_ns: Count


class NameLine(AnyLine):
    id: Annotated[int, Meta(ge=1, lt=(1 << 24))]
    name: Name


class NamedLine(AnyLine):
    name: Name


class LogLine(AnyLine):
    name: Annotated[int, Meta(ge=1, lt=(1 << 24))]
    value: Any


class ItemLine(AnyLine):
    item: Any


class ArtifactLine(AnyLine):
    name: Name
    kind: Word
    size_bytes: Count
    digest: Word
    chunks: list[str] = []
    files: list[dict[str, Any]] = []


class CheckpointLine(AnyLine):
    place: Word
    name: Name
    manifest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    bytes: Count
    new_bytes: Count
    stall_s: float
    write_s: float


class EndLine(AnyLine):
    outcome: Annotated[str, Meta(max_length=40)]
    error: dict[str, Any] | None = None


class WarningLine(AnyLine):
    message: Word


class PackagesLine(AnyLine):
    packages: dict[str, str]


class DataVersionLine(AnyLine):
    id: Word | None


_decode = msgspec.json.Decoder(AnyLine).decode
_decoders = {
    kind: msgspec.json.Decoder(shape).decode
    for kind, shape in {
        "run": RunLine, "child": ChildLine, "replay": ReplayLine,
        "name": NameLine, "arg": NamedLine, "data": NamedLine, "log": LogLine,
        "item": ItemLine, "artifact": ArtifactLine, "checkpoint": CheckpointLine, "end": EndLine,
        "warning": WarningLine, "packages": PackagesLine, "data_version": DataVersionLine,
    }.items()
}  # fmt: skip
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


def check(given: JournalRange) -> None:
    """Refuse a range that would make a journal that readers stumble over."""
    check_slots(given.slots, given.slots_at)
    check_lines(given.lines)
    if given.lines_at == 0 and given.lines:
        _check_first(given)


def check_lines(lines: bytes | memoryview) -> None:
    """Only whole lines, each of them a record."""
    lines = bytes(lines)
    if lines and not lines.endswith(b"\n"):
        raise HttpError(422, "the last line is not whole; send up to a newline")
    for row in lines.split(b"\n")[:-1]:
        if len(row) > MAX_LINE_BYTES:
            raise HttpError(413, f"a line of {len(row)} bytes is longer than {MAX_LINE_BYTES}; keep it as an artifact")
        if nesting(row) > MAX_NESTING:
            raise HttpError(422, f"a line is nested deeper than {MAX_NESTING} levels; log it as text")
        try:
            line: AnyLine = _decode(row)
            if line.k in _decoders:
                _decoders[line.k](row)
        except (msgspec.DecodeError, RecursionError) as error:
            raise HttpError(422, f"a line is no record ({error}); check the journal with `relive doctor`") from error


def nesting(row: bytes) -> int:
    """How deep brackets are nested in JSON, without reading it."""
    if row.count(b"[") + row.count(b"{") <= MAX_NESTING:
        return 0
    depth = deepest = 0
    for found in _BRACKETS.finditer(row):
        mark = found[0][:1]
        depth += (mark in b"[{") - (mark in b"]}")
        deepest = max(deepest, depth)
    return deepest


def check_slots(slots: bytes | memoryview, at: int) -> None:
    """Only whole slots, after the mark that begins the file, with loop numbers that can be."""
    if len(slots) % SLOT_BYTES or at % SLOT_BYTES:
        raise HttpError(422, f"slots are {SLOT_BYTES} bytes each; send whole ones")
    if not slots:
        return
    if at == 0 and slots[:SLOT_BYTES] != SLOTS_MAGIC:
        raise HttpError(
            422, "the slots do not begin as a journal of a format that this server knows; update the server"
        )
    import numpy as np

    words = np.frombuffer(slots, "<u4")[0 if at else 6 :: 6]
    if len(words) and int(words.max()) > at // SLOT_BYTES + len(words) + LOOPS_AHEAD:
        raise HttpError(422, "a slot names a loop that can't be; check the journal with `relive doctor`")


def _check_first(given: JournalRange) -> None:
    row = bytes(given.lines).partition(b"\n")[0]
    first = _decode(row)
    wanted = "replay" if given.journal.replay else "child" if given.journal.process else "run"
    if first.k != wanted:
        raise HttpError(422, f"a journal begins with a line of kind {wanted!r}, not {first.k!r}")
    if wanted == "run":
        header: RunLine = _decoders["run"](row)
        if header.run != given.run:
            raise HttpError(422, f"this journal belongs to run {header.run[:12]!r}; send it there")
