"""Packs of checkpoints on their way in: gathered until they are whole, verified, and then known by their name."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from relive.errors import NotFound, ReliveError
from relive.hashing import hasher
from relive.store.chunks import PACK_MAGIC, Packs
from relive.store.sync.chunk_uploads import add_part, is_hash, size_of
from relive.store.sync.intake import sync

MAX_PACK_BYTES = 64 << 30
_NAME = re.compile(r"[0-9a-f]{16}-[0-9]{1,10}-[0-9]{1,10}\.pack")
_READ_BYTES = 4 << 20
_FOOTER_BYTES = 16  # the length of the list of pieces, and the magic


class PackUploads:
    """A folder of unfinished packs. Those that are whole go to where checkpoints are read from."""

    def __init__(self, folder: Path, packs: Packs, *, max_bytes: int = MAX_PACK_BYTES) -> None:
        self._folder = folder
        self._packs = packs
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    def has(self, pack: str, size: int) -> bool:
        """Is the pack here? Names are hardly ever given twice; of two that are, the sizes tell."""
        return size_of(self._packs.folder / checked_name(pack)) == size

    def position(self, pack: str, digest: str, size: int) -> int | None:
        """How many bytes of it are here; None when it is complete."""
        there = self.has(pack, size) or self.has(_by_content(digest), size)
        return None if there else size_of(self._partial(digest))

    def put(self, pack: str, digest: str, *, at: int, size: int, part: bytes) -> int | None:
        """Add a part; gives where to go on, None when the pack is complete. A part elsewhere is left alone."""
        if size > self._max_bytes or at + len(part) > size:
            raise ReliveError(
                f"a pack of {max(size, at + len(part))} bytes is too large; {self._max_bytes} are allowed"
            )
        with self._lock:
            there = self.position(pack, digest, size)
            if there != at:
                return there
            partial = self._partial(digest)
            add_part(partial, at, part)
            if at + len(part) < size:
                return at + len(part)
            self._finish(pack, digest, partial)
        return None

    def _partial(self, digest: str) -> Path:
        if not is_hash(digest):
            raise ReliveError(f"{digest[:40]!r} is no hash; give the 64 hexadecimal digits of the pack's BLAKE3")
        return self._folder / f"{digest}.partial"

    def _finish(self, pack: str, digest: str, partial: Path) -> None:
        try:
            _verify(partial, digest)
        except ReliveError:
            partial.unlink(missing_ok=True)
            raise
        sync(partial)
        with self._packs.shared():  # nothing is collected meanwhile
            target = self._packs.folder / pack
            # A name that is taken by other bytes is not overwritten: pieces are found by their hash, too.
            partial.rename(self._packs.folder / _by_content(digest) if target.exists() else target)
            sync(self._packs.folder)


def _verify(partial: Path, digest: str) -> None:
    """Are these the bytes that were hashed, and do they list pieces that lie inside?"""
    hash_ = hasher()
    with partial.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            hash_.update(piece)
    if hash_.hexdigest() != digest:
        raise ReliveError("the bytes of the pack are not those that were hashed; send them again")
    pieces, end = Packs(partial.parent).pieces(partial.name), os.path.getsize(partial) - _FOOTER_BYTES
    if not pieces or any(
        p.offset < len(PACK_MAGIC) or p.stored_bytes < 0 or p.offset + p.stored_bytes > end for p in pieces
    ):
        raise ReliveError("this is no pack of checkpoints; check the home that it comes from with `relive doctor`")


def checked_name(pack: str) -> str:
    if not _NAME.fullmatch(pack):
        raise NotFound(f"{pack[:60]!r} is not the name of a pack; send what lies in chunks/packs of a home")
    return pack


def _by_content(digest: str) -> str:
    return f"{digest[:16]}-0-0.pack"
