"""Which checkpoints of a run were dropped: tombstones in a file beside its journal, since journals only grow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from relive.store.chunks.checkpoint_rows import CheckpointRow, list_checkpoints
from relive.store.durable_files import sync_folder
from relive.store.home import JournalName
from relive.store.journal import ParsedJournal

FORMAT = 1
SUFFIX = ".dropped"
# A checkpoint is identified by the sequence number of its line and its manifest: equal states share a manifest, and
# either of them may be dropped without the other.
SeqAndManifest = tuple[int, str]


class _Tombstone(msgspec.Struct):
    v: int
    seq: int
    manifest: str
    t: int


_decode = msgspec.json.Decoder(_Tombstone).decode
_encode = msgspec.json.Encoder().encode


def read_dropped(folder: Path, journal: JournalName) -> frozenset[SeqAndManifest]:
    """Returns the checkpoints of a journal that were dropped. An unreadable tombstone drops nothing."""
    try:
        rows = (folder / (journal.stem + SUFFIX)).read_bytes().split(b"\n")[:-1]
    except OSError:
        return frozenset()
    stones = [stone for row in rows if (stone := _decode_tombstone(row)) is not None]
    return frozenset((stone.seq, stone.manifest) for stone in stones if stone.v <= FORMAT)


def _decode_tombstone(row: bytes) -> _Tombstone | None:
    try:
        return _decode(row)
    except ValueError:  # also for bytes that are no text
        return None


def drop_checkpoints(folder: Path, rows: Iterable[CheckpointRow]) -> None:
    """Drops checkpoints. Once this returns, no reader lists them any more, not even after a power cut."""
    by_journal: dict[JournalName, list[CheckpointRow]] = {}
    for row in rows:
        by_journal.setdefault(row.journal, []).append(row)
    for journal, journal_rows in by_journal.items():
        stones = [_Tombstone(FORMAT, row.seq, row.manifest, time.time_ns()) for row in journal_rows]
        _append(folder / (journal.stem + SUFFIX), b"".join(_encode(stone) + b"\n" for stone in stones))
    sync_folder(folder)


def _append(path: Path, lines: bytes) -> None:
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                lines = b"\n" + lines  # a torn last line must not swallow the next one
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def without_dropped(folder: Path, rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    """Returns the checkpoints that were not dropped."""
    dropped = {journal: read_dropped(folder, journal) for journal in {row.journal for row in rows}}
    return [row for row in rows if (row.seq, row.manifest) not in dropped[row.journal]]


def list_kept_checkpoints(folder: Path, journals: Iterable[ParsedJournal]) -> list[CheckpointRow]:
    """Returns the checkpoints that the journals of a run name, without the dropped ones."""
    return without_dropped(folder, [row for journal in journals for row in list_checkpoints(journal)])
