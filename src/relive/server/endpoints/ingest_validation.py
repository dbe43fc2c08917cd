"""Whether bytes from outside may become part of a journal: every line and slot must be what readers rely on."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from relive.server.http import HttpError
from relive.store.journal import SLOT_BYTES, SLOTS_MAGIC, TABLE_ROOM, line_schema
from relive.store.sync import JournalRange

MAX_NESTING = 100
MAX_LINE_BYTES = 16 << 20
MAX_MARKS = 1_000_000  # commas and brackets: an item takes up to 200 bytes of memory
_PART_BYTES = 1 << 20  # of a line, looked at together


class _LineEnvelope(msgspec.Struct, frozen=True):
    """The fields of any line, of kinds that a later release may add too."""

    v: Annotated[int, Meta(ge=1)]
    seq: Annotated[int, Meta(ge=1, lt=1 << 40)]
    t: line_schema.Count
    k: Annotated[str, Meta(max_length=40)]
    loop: line_schema.Word32
    i: line_schema.Word32


@lru_cache(maxsize=1)
def _envelope_decoder() -> Callable[[bytes], _LineEnvelope]:
    return msgspec.json.Decoder(_LineEnvelope).decode


def check(given: JournalRange) -> str | None:
    """Refuse a range that would make a journal that readers stumble over; gives the project in its first line."""
    check_slots(given.slots, given.slots_at)
    check_lines(given.lines)
    return _check_first(given) if given.lines_at == 0 and given.lines else None


def check_lines(lines: bytes | memoryview) -> None:
    """Only whole lines, each of them a record."""
    lines = bytes(lines)
    if lines and not lines.endswith(b"\n"):
        raise HttpError(422, "the last line is not whole; send up to a newline")
    for row in lines.split(b"\n")[:-1]:
        if len(row) > MAX_LINE_BYTES:
            raise HttpError(413, f"a line of {len(row)} bytes is longer than {MAX_LINE_BYTES}; keep it as an artifact")
        if row.count(b",") + row.count(b"[") + row.count(b"{") > MAX_MARKS:
            raise HttpError(413, f"a line has more than {MAX_MARKS} items; keep it as an artifact")
        if nesting(row) > MAX_NESTING:
            raise HttpError(422, f"a line is nested deeper than {MAX_NESTING} levels; log it as text")
        _decode(row)


def _decode(row: bytes) -> line_schema.JournalLine | None:
    """Decodes a line of a kind that this release knows; returns None for one that a later release may have added."""
    try:
        return line_schema.line_decoder()(row)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        kind = _unknown_kind(row)
        if kind is not None:
            return None
        about = f"{error}; check the journal with `relive doctor`"
        raise HttpError(422, f"a line does not fit the schema of its kind: {_kind_in(row)}{about}") from error


def _unknown_kind(row: bytes) -> str | None:
    try:
        envelope = _envelope_decoder()(row)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return envelope.k if envelope.v <= line_schema.JOURNAL_FORMAT and envelope.k not in line_schema.kinds() else None


def _kind_in(row: bytes) -> str:
    found = re.search(rb'"k"\s*:\s*"(\w{1,40})"', row)
    return f"{found[1].decode()!r}, " if found else ""


def nesting(row: bytes) -> int:
    """How deep brackets are nested in JSON, without reading it. Takes the same time for any content."""
    if row.count(b"[") + row.count(b"{") <= MAX_NESTING:
        return 0
    import numpy as np

    plain = row.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of quotes begins or ends a string
    depth = deepest = quotes = 0
    for at in range(0, len(plain), _PART_BYTES):
        chars = np.frombuffer(plain, np.uint8, min(_PART_BYTES, len(plain) - at), at)
        counted = np.cumsum(chars == ord('"'), dtype=np.int32) + quotes
        opens, closes = (chars == ord("[")) | (chars == ord("{")), (chars == ord("]")) | (chars == ord("}"))
        steps = (opens.astype(np.int32) - closes) * (counted % 2 == 0)
        depths = np.cumsum(steps, dtype=np.int32) + depth
        depth, quotes, deepest = int(depths[-1]), int(counted[-1]), max(deepest, int(depths.max()))
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
    if len(words) and int(words.max()) > at // SLOT_BYTES + len(words) + TABLE_ROOM:
        raise HttpError(422, "a slot names a loop that can't be; check the journal with `relive doctor`")


def _check_first(given: JournalRange) -> str | None:
    row = bytes(given.lines).partition(b"\n")[0]
    if given.journal.replay:
        wanted: type[line_schema.JournalStarted] = line_schema.ReplayStarted
    else:
        wanted = line_schema.ChildStarted if given.journal.process else line_schema.RunStarted
    first = _decode(row)
    if not isinstance(first, wanted):
        raise HttpError(
            422, f"a journal begins with a line of kind {wanted.__struct_config__.tag!r}; send it from there"
        )
    if isinstance(first, line_schema.RunStarted) and first.run != given.run:
        raise HttpError(422, f"this journal belongs to run {first.run[:12]!r}; send it there")
    return first.project if isinstance(first, line_schema.RunStarted) else None
