"""Chunks on their way in: parts of a chunk's file, gathered until it is whole, and verified before it has its name."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from relive.errors import ReliveError
from relive.hashing import hasher
from relive.store.chunks import PLAIN, ZSTD, Chunks
from relive.store.sync.intake import StoreFull, sync

MAX_CHUNK_BYTES = 4 << 30
_READ_BYTES = 1 << 20


class ChunkUploads:
    """A folder of unfinished chunks. Two who send the same chunk help each other."""

    def __init__(self, folder: Path, chunks: Chunks, *, max_bytes: int = MAX_CHUNK_BYTES) -> None:
        self._folder = folder
        self._chunks = chunks
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    def position(self, name: str) -> int | None:
        """How many bytes are there; None when the chunk is complete."""
        return None if name in self._chunks else size_of(self._partial(name))

    def put(self, name: str, at: int, size: int, part: bytes) -> int | None:
        """Add a part; gives where to go on, None when the chunk is complete. A part elsewhere is left alone."""
        if size > self._max_bytes or at + len(part) > size:
            raise ReliveError(
                f"a chunk of {max(size, at + len(part))} bytes is too large; {self._max_bytes} are allowed"
            )
        partial = self._partial(name)
        with self._lock:
            if name in self._chunks:
                return None
            there = size_of(partial)
            if there != at:
                return there
            add_part(partial, at, part)
            if at + len(part) < size:
                return at + len(part)
            self._finish(name, partial)
        return None

    def _partial(self, name: str) -> Path:
        self._chunks.path(name)  # refuses what is no name of a chunk
        return self._folder / name

    def _finish(self, name: str, partial: Path) -> None:
        hash_ = hasher(0)
        try:
            for piece in _plain(partial, self._max_bytes):
                hash_.update(piece)
            if hash_.hexdigest() != name:
                raise ReliveError(f"the bytes of chunk {name[:12]} are not those of its name; send them again")
        except ReliveError:
            partial.unlink(missing_ok=True)
            raise
        target = self._chunks.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        sync(partial)
        partial.rename(target)
        sync(target.parent)


def _plain(path: Path, limit_bytes: int) -> Iterator[bytes]:
    """What a chunk's file reads as, piece by piece."""
    import zstandard

    with path.open("rb") as file:
        form = file.read(1)
        if form not in (PLAIN, ZSTD):
            raise ReliveError("this is no chunk of a format that the server knows; update the server")
        try:
            source = (
                file if form == PLAIN else zstandard.ZstdDecompressor(max_window_size=128 << 20).stream_reader(file)
            )
            size = 0
            while piece := source.read(_READ_BYTES):
                size += len(piece)
                if size > limit_bytes:
                    raise ReliveError(f"the chunk unpacks to more than {limit_bytes} bytes; keep it in smaller parts")
                yield piece
        except zstandard.ZstdError as error:
            raise ReliveError(f"the chunk can't be unpacked ({error}); send it again") from error


def add_part(partial: Path, at: int, part: bytes) -> None:
    """Add a part to what was gathered, which ends at `at`; a part that the disk does not take leaves no trace."""
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("ab") as file:
            file.write(part)
    except OSError as error:
        if partial.exists():
            os.truncate(partial, at)
        raise StoreFull(f"{error.strerror} on the server; free some space there") from error


def is_hash(word: str) -> bool:
    return len(word) == 64 and all(c in "0123456789abcdef" for c in word)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
