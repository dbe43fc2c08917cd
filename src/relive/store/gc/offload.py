"""How packs leave the home: sent, read back and compared, noted, and only then removed; and what nobody needs goes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from relive.errors import Damaged, NotFound, StorageAway
from relive.store.chunks import (
    OFFLOAD_FORMAT,
    OFFLOAD_SUFFIX,
    RETIRED_SUFFIX,
    ObjectStore,
    OffloadNote,
    Packs,
    ReferenceScanner,
    measured,
    note_of,
    open_object_store,
    read_note,
    write_note,
)
from relive.store.gc.retention import Resident
from relive.store.home import Home

_READ_BYTES = 4 << 20
BATCH_BYTES = 1 << 30  # so much is sent before it is looked again who needs it, and removed here


class Offloader:
    """Moves packs of a home to the place that the setting `spool` names."""

    def __init__(self, home: Home, url: str) -> None:
        self._folder = home.packs
        self._identity = home.identity()
        self._depot: ObjectStore = open_object_store(url)

    def move(self, packs: Sequence[Resident], remove: Callable[[Sequence[Resident]], list[int]]) -> Iterator[int]:
        """Send packs, and let `remove` take away here those that still may go; gives the bytes freed by each."""
        for batch in batches(packs):
            for one in batch:
                self._send(one.pack)
            yield from remove(batch)

    def _send(self, pack: str) -> None:
        """Killed at any moment: without its note a pack is only here, and with it also there."""
        note = note_of(self._folder, pack)
        if note is not None and note.url == self._depot.url and self._depot.size(note.name) == note.size_bytes:
            return  # it was there before, and came back
        name = f"{self._identity}/{pack}"
        note = _noted(self._folder / pack, self._depot.url, name)
        self._depot.put(name, self._folder / pack)
        if not is_whole(note, self._depot):
            raise StorageAway(f"{name} is not in {note.url} what was sent; nothing was removed, try another place")
        write_note(self._folder, pack, note)


def _noted(path: Path, url: str, name: str) -> OffloadNote:
    with path.open("rb") as file:
        size_bytes, digest = measured(iter(lambda: file.read(_READ_BYTES), b""), path.stat().st_size)
    return OffloadNote(OFFLOAD_FORMAT, url, name, size_bytes, digest)


def is_whole(note: OffloadNote, depot: ObjectStore | None = None) -> bool:
    """Read a pack where it is kept: is it what was sent?"""
    parts = (depot or open_object_store(note.url)).read(note.name)
    return measured(parts, note.size_bytes) == (note.size_bytes, note.digest)


def batches(packs: Iterable[Resident]) -> Iterator[list[Resident]]:
    """Portions of about BATCH_BYTES, in order."""
    batch: list[Resident] = []
    for one in packs:
        batch.append(one)
        if sum(pack.size_bytes for pack in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def retire(folder: Path, packs: Iterable[str]) -> None:
    """From now on these packs are not kept outside, for any reader; `remove_retired` then lets them go."""
    for pack in packs:
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder / (pack + OFFLOAD_SUFFIX), folder / (pack + RETIRED_SUFFIX))


def retired(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pack" + RETIRED_SUFFIX))


def remove_retired(home: Home) -> list[int]:
    """Remove what is kept outside and was retired; gives the sizes. What another home sent is not ours to remove."""
    return [_remove_outside(home, path) for path in retired(home.packs)]


def _remove_outside(home: Home, path: Path) -> int:
    try:
        note = read_note(path)
    except Damaged:  # then nobody can tell where it is
        path.unlink(missing_ok=True)
        return 0
    if note.name.startswith(home.identity() + "/"):
        open_object_store(note.url).remove(note.name)
    path.unlink(missing_ok=True)
    return note.size_bytes


def kept_outside(home: Home, manifests: Iterable[str]) -> dict[str, list[str]]:
    """For each checkpoint that needs packs which are not in the home: the places where they are."""
    packs, names = Packs(home.packs), ReferenceScanner(home)
    here, notes = set(packs.names()), {pack: note_of(home.packs, pack) for pack in packs.spooled()}
    found: dict[str, list[str]] = {}
    for manifest in manifests if notes else ():
        with contextlib.suppress(NotFound, Damaged):  # what can't be read is told by `relive doctor`
            away = sorted({piece.pack for piece in names.manifest_pieces(manifest)} - here)
            if places := list(dict.fromkeys(note.url for pack in away if (note := notes.get(pack)))):
                found[manifest] = places
    return found
