"""Which packs are offloaded: a note beside the packs says where each is kept, and reading one fetches it back."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from relive.errors import Damaged, Gone, ReliveError
from relive.hashing import hasher
from relive.store.durable_files import publish, read_sealed, write_sealed

OFFLOAD_FORMAT = 1
OFFLOAD_SUFFIX = ".spooled"  # of a note: it follows the name of the pack
RETIRED_SUFFIX = ".retired"  # of a note whose pack no checkpoint needs: the pack is to be removed from its store


class OffloadNote(msgspec.Struct, frozen=True):
    """Where a pack is kept outside the home, and the hash of its file."""

    v: int
    url: str
    name: str
    size_bytes: int
    digest: str


_decode_note = msgspec.json.Decoder(OffloadNote).decode


def offloaded_packs(folder: Path) -> set[str]:
    """Returns the names of the packs that are kept outside; some of them may be here as well."""
    try:
        return {
            name.removesuffix(OFFLOAD_SUFFIX) for name in os.listdir(folder) if name.endswith(".pack" + OFFLOAD_SUFFIX)
        }
    except FileNotFoundError:
        return set()


def is_offloaded(folder: Path, pack: str) -> bool:
    """Whether a pack is kept outside the home."""
    return (folder / (pack + OFFLOAD_SUFFIX)).exists()


def read_note(path: Path) -> OffloadNote:
    """Reads a note; raises `Damaged` when it is unreadable or too new."""
    try:
        note = _decode_note(read_sealed(path))
    except (ValueError, Damaged) as error:
        raise Damaged(f"{path} can't be read ({error}); restore an earlier checkpoint") from error
    if note.v > OFFLOAD_FORMAT:
        raise Damaged(f"{path} was written by a newer relive; upgrade to read it")
    return note


def find_note(folder: Path, pack: str) -> OffloadNote | None:
    """Returns the note of a pack; None when it is not offloaded."""
    try:
        return read_note(folder / (pack + OFFLOAD_SUFFIX))
    except FileNotFoundError:
        return None


def write_note(folder: Path, pack: str, note: OffloadNote) -> None:
    """Writes a note. Once this returns, the note survives a power cut."""
    write_sealed(folder / (pack + OFFLOAD_SUFFIX), msgspec.json.encode(note))


def fetch_back(folder: Path, pack: str) -> None:
    """Fetches and verifies an offloaded pack. The object store keeps its copy, so offloading it again is quick."""
    note = find_note(folder, pack)
    if note is None:
        raise Gone(f"pack {pack} is gone; restore an earlier checkpoint")
    # Imported only when a pack is away: recording never needs it.
    from relive.store.chunks.object_stores import open_object_store

    object_store = open_object_store(note.url)
    try:
        with (folder / f".{pack}.partial").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # several workers may need the same pack: the others wait
            if (folder / pack).exists():
                return
            file.truncate(0)
            written = _write_parts(object_store.read(note.name), file)
            if measure_parts(written, note.size_bytes) != (note.size_bytes, note.digest):
                raise Damaged(f"{note.name} in {note.url} is damaged; restore an earlier checkpoint")
            file.flush()
            publish(Path(file.name), folder / pack)
    except OSError as error:
        problem = f"pack {pack} is kept in {note.url} and can't be brought back to {folder}"
        raise ReliveError(f"{problem}: {error}; check that there is space and the folder is writable") from error


def measure_parts(parts: Iterable[bytes], expected_bytes: int) -> tuple[int, str]:
    """Returns the size and the hash of content that comes in parts; the expected size only speeds up hashing."""
    hash_, size = hasher(expected_bytes), 0
    for part in parts:
        hash_.update(part)
        size += len(part)
    return size, hash_.hexdigest()


def _write_parts(parts: Iterable[bytes], file: IO[bytes]) -> Iterator[bytes]:
    """Writes each part to a file and passes it on."""
    for part in parts:
        file.write(part)
        yield part
