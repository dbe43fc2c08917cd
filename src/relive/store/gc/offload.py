"""Moves packs to an object store: sends, reads back and compares, writes the note, and only then removes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from relive.errors import Damaged, NotFound, StorageUnavailable
from relive.store.chunks import (
    OFFLOAD_FORMAT,
    OFFLOAD_SUFFIX,
    RETIRED_SUFFIX,
    ObjectStore,
    OffloadNote,
    Packs,
    ReferenceScanner,
    find_note,
    measure_parts,
    open_object_store,
    read_note,
    write_note,
)
from relive.store.durable_files import sync_folder
from relive.store.gc.retention import LocalPack
from relive.store.home import Home

_READ_BYTES = 4 << 20
BATCH_BYTES = 1 << 30  # sent before references are scanned again and the batch is removed here


class Offloader:
    """Moves packs of a home to the object store that the setting `spool` names."""

    def __init__(self, home: Home, url: str) -> None:
        self._folder = home.packs
        self._identity = home.identity()
        self._object_store: ObjectStore = open_object_store(url)

    def move(self, packs: Sequence[LocalPack], remove: Callable[[Sequence[LocalPack]], list[int]]) -> Iterator[int]:
        """Sends packs batch by batch, calls `remove` for each batch, and yields the bytes that this frees."""
        for batch in _batches(packs):
            for pack in batch:
                self._send(pack.name)
            yield from remove(batch)

    def _send(self, pack: str) -> None:
        """Sends one pack. If killed before the note is written, the pack counts as local only; after, as in both."""
        note = find_note(self._folder, pack)
        if note is not None and self._is_stored(note):
            return  # it was offloaded before and fetched back
        name = f"{self._identity}/{pack}"
        note = _make_note(self._folder / pack, self._object_store.url, name)
        self._object_store.put(name, self._folder / pack)
        if not is_stored_intact(note, self._object_store):
            raise StorageUnavailable(
                f"{name} in {note.url} differs from what was sent; nothing was removed, use another object store"
            )
        write_note(self._folder, pack, note)

    def _is_stored(self, note: OffloadNote) -> bool:
        return note.url == self._object_store.url and self._object_store.size(note.name) == note.size_bytes


def _make_note(path: Path, url: str, name: str) -> OffloadNote:
    with path.open("rb") as file:
        size_bytes, digest = measure_parts(iter(lambda: file.read(_READ_BYTES), b""), path.stat().st_size)
    return OffloadNote(OFFLOAD_FORMAT, url, name, size_bytes, digest)


def is_stored_intact(note: OffloadNote, object_store: ObjectStore | None = None) -> bool:
    """Whether a pack, read from its object store, is what was sent."""
    parts = (object_store or open_object_store(note.url)).read(note.name)
    return measure_parts(parts, note.size_bytes) == (note.size_bytes, note.digest)


def _batches(packs: Iterable[LocalPack]) -> Iterator[list[LocalPack]]:
    """Yields the packs in batches of about BATCH_BYTES, in order."""
    batch: list[LocalPack] = []
    for pack in packs:
        batch.append(pack)
        if sum(one.size_bytes for one in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def retire(folder: Path, packs: Iterable[str]) -> None:
    """Makes packs no longer count as offloaded for any reader; `remove_retired` then removes them from their store."""
    is_changed = False
    for pack in packs:
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder / (pack + OFFLOAD_SUFFIX), folder / (pack + RETIRED_SUFFIX))
            is_changed = True
    if is_changed:
        sync_folder(folder)  # a note must not come back after its pack is removed from the store


def list_retired(folder: Path) -> list[Path]:
    """Returns the notes of retired packs."""
    return sorted(folder.glob("*.pack" + RETIRED_SUFFIX))


def remove_retired(home: Home) -> list[int]:
    """Removes retired packs from their object store; returns their sizes. Packs that another home sent stay there."""
    return [_remove_retired_pack(home, path) for path in list_retired(home.packs)]


def _remove_retired_pack(home: Home, path: Path) -> int:
    try:
        note = read_note(path)
    except Damaged:  # where the pack is kept is lost
        path.unlink(missing_ok=True)
        return 0
    if note.name.startswith(home.identity() + "/"):
        open_object_store(note.url).remove(note.name)
    path.unlink(missing_ok=True)
    return note.size_bytes


def offload_locations(home: Home, manifests: Iterable[str]) -> dict[str, list[str]]:
    """Returns the object stores that a checkpoint needs, for each one that needs packs outside the home."""
    packs, scanner = Packs(home.packs), ReferenceScanner(home)
    here, notes = set(packs.names()), {pack: find_note(home.packs, pack) for pack in packs.offloaded()}
    found: dict[str, list[str]] = {}
    for manifest in manifests if notes else ():
        with contextlib.suppress(NotFound, Damaged):  # `relive doctor` reports what can't be read
            away = sorted({piece.pack for piece in scanner.manifest_pieces(manifest)} - here)
            if urls := list(dict.fromkeys(note.url for pack in away if (note := notes.get(pack)))):
                found[manifest] = urls
    return found
