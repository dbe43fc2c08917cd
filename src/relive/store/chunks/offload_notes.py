"""Which packs were moved out of the home: a note beside the others tells where each is, and it comes back when read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from relive.errors import Damaged, Gone, ReliveError
from relive.hashing import hasher

OFFLOAD_FORMAT = 1
OFFLOAD_SUFFIX = ".spooled"  # after the name of the pack
RETIRED_SUFFIX = ".retired"  # of a note whose pack nobody needs: it is to be removed where it is


class OffloadNote(msgspec.Struct, frozen=True):
    """Where a pack is kept outside the home, and the hash of its file."""

    v: int
    url: str
    name: str
    size_bytes: int
    digest: str


_decode = msgspec.json.Decoder(OffloadNote).decode


def offloaded_packs(folder: Path) -> set[str]:
    """The names of the packs that are kept outside; some of them may be here as well."""
    try:
        return {
            name.removesuffix(OFFLOAD_SUFFIX) for name in os.listdir(folder) if name.endswith(".pack" + OFFLOAD_SUFFIX)
        }
    except FileNotFoundError:
        return set()


def is_offloaded(folder: Path, pack: str) -> bool:
    return (folder / (pack + OFFLOAD_SUFFIX)).exists()


def read_note(path: Path) -> OffloadNote:
    try:
        note = _decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise Damaged(f"{path} can't be read ({error}); restore an earlier checkpoint") from error
    if note.v > OFFLOAD_FORMAT:
        raise Damaged(f"{path} was written by a newer relive; upgrade to read it")
    return note


def note_of(folder: Path, pack: str) -> OffloadNote | None:
    """Where a pack is kept outside, if it is."""
    try:
        return read_note(folder / (pack + OFFLOAD_SUFFIX))
    except FileNotFoundError:
        return None


def write_note(folder: Path, pack: str, note: OffloadNote) -> None:
    """Once this returns the note is there, also after a power cut."""
    target = folder / (pack + OFFLOAD_SUFFIX)
    partial = folder / f".{pack}{OFFLOAD_SUFFIX}.partial"
    with partial.open("wb") as file:
        file.write(msgspec.json.encode(note))
        file.flush()
        os.fsync(file.fileno())
    partial.rename(target)
    sync(folder)


def bring_back(folder: Path, pack: str) -> None:
    """Get a pack that was moved out, and check it. It stays where it is as well, so that moving it again is quick."""
    note = note_of(folder, pack)
    if note is None:
        raise Gone(f"pack {pack} is gone; restore an earlier checkpoint")
    from relive.store.chunks.object_stores import (
        open_object_store,  # only where something is away: recording has no use for it
    )

    depot = open_object_store(note.url)
    try:
        with (folder / f".{pack}.partial").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # several workers may need the same one: the others wait
            if (folder / pack).exists():
                return
            file.truncate(0)
            if measured(_copied(depot.read(note.name), file), note.size_bytes) != (note.size_bytes, note.digest):
                raise Damaged(f"{note.name} in {note.url} is damaged; restore an earlier checkpoint")
            file.flush()
            os.fsync(file.fileno())
            os.rename(file.name, folder / pack)
        sync(folder)
    except OSError as error:
        where = f"pack {pack} is kept in {note.url} and can't be brought back to {folder}"
        raise ReliveError(f"{where}: {error}; see that there is room, and that the folder may be written") from error


def measured(parts: Iterable[bytes], size_bytes: int) -> tuple[int, str]:
    """Size and hash of what comes in parts; `size_bytes` is what is expected."""
    hash_, size = hasher(size_bytes), 0
    for part in parts:
        hash_.update(part)
        size += len(part)
    return size, hash_.hexdigest()


def _copied(parts: Iterable[bytes], file: IO[bytes]) -> Iterator[bytes]:
    for part in parts:
        file.write(part)
        yield part


def sync(folder: Path) -> None:
    """Make what was renamed in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
