"""Receives packs on the server: parts are collected until a pack is complete, and verified before it gets its name."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from relive.errors import NotFound, ReliveError
from relive.store.chunks import PACK_MAGIC, Packs, is_digest, pack_file_digest
from relive.store.durable_files import publish, sync_file
from relive.store.sync.chunk_uploads import add_part, check_size
from relive.store.sync.intake import file_size

MAX_PACK_BYTES = 64 << 30
_PACK_NAME = re.compile(r"[0-9a-f]{16}-[0-9]{1,10}-[0-9]{1,10}\.pack")
_LOCKS = 256
_TRAILER_BYTES = 16  # the length of the footer, and the magic


class PackUploads:
    """A folder of unfinished packs. Complete ones are moved to the folder that checkpoints are read from."""

    def __init__(self, folder: Path, packs: Packs, *, max_bytes: int = MAX_PACK_BYTES) -> None:
        self._folder = folder
        self._packs = packs
        self._max_bytes = max_bytes
        self._locks = [threading.Lock() for _ in range(_LOCKS)]  # by hash: verifying one pack holds few others up
        self._publishing = threading.Lock()  # of two packs with the same name, the second gets another one

    def has(self, pack: str, size: int) -> bool:
        """Whether the pack is here. Two packs hardly ever share a name; if they do, their sizes tell them apart."""
        return file_size(self._packs.folder / check_pack_name(pack)) == size

    def position(self, pack: str, digest: str, size: int) -> int | None:
        """Returns how many bytes of a pack are here; None when it is complete."""
        is_complete = self.has(pack, size) or self.has(_content_name(digest), size)
        return None if is_complete else file_size(self._partial(digest))

    def put(self, pack: str, digest: str, *, at: int, size: int, part: bytes) -> int | None:
        """Adds a part; returns where to continue, None when the pack is complete. Ignores a part at another offset."""
        check_size("pack", size, at + len(part), self._max_bytes)
        partial = self._partial(digest)
        with self._locks[int(digest[:8], 16) % _LOCKS]:
            stored = self.position(pack, digest, size)
            if stored != at:
                return stored
            add_part(partial, at, part)
            if at + len(part) < size:
                return at + len(part)
            self._finish(pack, digest, partial)
        return None

    def _partial(self, digest: str) -> Path:
        if not is_digest(digest):
            raise ReliveError(f"{digest[:40]!r} is not a hash; give the 64 hexadecimal digits of the pack's BLAKE3")
        return self._folder / f"{digest}.partial"

    def _finish(self, pack: str, digest: str, partial: Path) -> None:
        try:
            _verify(partial, digest)
        except ReliveError:
            partial.unlink(missing_ok=True)
            raise
        sync_file(partial)  # before the lock is held, since a large pack takes a while
        with self._publishing, self._packs.shared_lock():  # the latter keeps packs from being removed meanwhile
            target = self._packs.folder / pack
            # A pack of the same name is not overwritten: pieces are found by their hash as well.
            publish(partial, self._packs.folder / _content_name(digest) if target.exists() else target)


def _verify(partial: Path, digest: str) -> None:
    """Checks the hash of a pack, and that its footer lists pieces that lie inside it."""
    if pack_file_digest(partial) != digest:
        raise ReliveError("the bytes of the pack don't match its hash; send them again")
    pieces, end = Packs(partial.parent).pieces(partial.name), os.path.getsize(partial) - _TRAILER_BYTES
    if not pieces or any(
        p.offset < len(PACK_MAGIC) or p.stored_bytes < 0 or p.offset + p.stored_bytes > end for p in pieces
    ):
        raise ReliveError("this is not a pack of checkpoints; check the home that it comes from with `relive doctor`")


def check_pack_name(pack: str) -> str:
    """Returns the name of a pack; raises `NotFound` when it has another form."""
    if not _PACK_NAME.fullmatch(pack):
        raise NotFound(f"{pack[:60]!r} is not the name of a pack; send files from chunks/packs of a home")
    return pack


def _content_name(digest: str) -> str:
    """Returns the name of a pack whose own name is taken."""
    return f"{digest[:16]}-0-0.pack"
