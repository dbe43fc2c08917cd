"""Receives chunks on the server: parts are collected until a file is complete, and verified before it gets its name."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from relive.errors import ReliveError
from relive.hashing import hasher
from relive.store.chunks import PLAIN_CHUNK, ZSTD_CHUNK, Chunks
from relive.store.durable_files import make_folder, publish
from relive.store.sync.intake import StoreFull, file_size

MAX_CHUNK_BYTES = 4 << 30
_READ_BYTES = 1 << 20
_LOCKS = 256


class ChunkUploads:
    """A folder of unfinished chunks. Clients that send the same chunk complete it together."""

    def __init__(self, folder: Path, chunks: Chunks, *, max_bytes: int = MAX_CHUNK_BYTES) -> None:
        self._folder = folder
        self._chunks = chunks
        self._max_bytes = max_bytes
        self._locks = [threading.Lock() for _ in range(_LOCKS)]  # by name: verifying one chunk holds few others up

    def position(self, name: str) -> int | None:
        """Returns how many bytes are stored; None when the chunk is complete."""
        return None if name in self._chunks else file_size(self._partial(name))

    def put(self, name: str, at: int, size: int, part: bytes) -> int | None:
        """Adds a part; returns where to continue, None when the chunk is complete. Ignores a part at another offset."""
        check_size("chunk", size, at + len(part), self._max_bytes)
        partial = self._partial(name)
        with self._locks[int(name[:8], 16) % _LOCKS]:
            if name in self._chunks:
                return None
            stored = file_size(partial)
            if stored != at:
                return stored
            add_part(partial, at, part)
            if at + len(part) < size:
                return at + len(part)
            self._finish(name, partial)
        return None

    def _partial(self, name: str) -> Path:
        self._chunks.path(name)  # raises NotFound for an invalid name
        return self._folder / name

    def _finish(self, name: str, partial: Path) -> None:
        hash_ = hasher(0)
        try:
            for piece in read_decoded(partial, self._max_bytes):
                hash_.update(piece)
            if hash_.hexdigest() != name:
                raise ReliveError(f"the bytes of chunk {name[:12]} don't match its name; send them again")
        except ReliveError:
            partial.unlink(missing_ok=True)
            raise
        target = self._chunks.path(name)
        make_folder(target.parent)
        publish(partial, target)


def read_decoded(path: Path, limit_bytes: int) -> Iterator[bytes]:
    """Yields the decoded content of a chunk's file, piece by piece."""
    import zstandard

    with path.open("rb") as file:
        codec = file.read(1)
        if codec not in (PLAIN_CHUNK, ZSTD_CHUNK):
            raise ReliveError("the chunk has a format that this server doesn't know; update the server")
        try:
            decompressor = zstandard.ZstdDecompressor(max_window_size=128 << 20)
            source = file if codec == PLAIN_CHUNK else decompressor.stream_reader(file)
            size = 0
            while piece := source.read(_READ_BYTES):
                size += len(piece)
                if size > limit_bytes:
                    raise ReliveError(f"the chunk unpacks to more than {limit_bytes} bytes; keep it in smaller parts")
                yield piece
        except zstandard.ZstdError as error:
            raise ReliveError(f"the chunk can't be unpacked ({error}); send it again") from error


def check_size(kind: str, size: int, end: int, max_bytes: int) -> None:
    """Refuses a part that ends beyond the announced size, and files beyond the limit."""
    if size > max_bytes or end > size:
        raise ReliveError(f"a {kind} of {max(size, end)} bytes is too large; {max_bytes} are allowed")


def add_part(partial: Path, at: int, part: bytes) -> None:
    """Appends a part to a file that ends at `at`; if the disk is full, the file is restored to that size."""
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("ab") as file:
            file.write(part)
    except OSError as error:
        if partial.exists():
            os.truncate(partial, at)
        raise StoreFull(f"{error.strerror} on the server; free some space there") from error
