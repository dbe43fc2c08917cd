"""Content-addressed storage: bytes are stored once under their hash and verified when they are read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from relive.errors import Damaged, Gone, NotFound
from relive.hashing import digest
from relive.store.durable_files import make_folder, open_atomically

PIECE_BYTES = 16 << 20  # files are stored in pieces of this size, so that large ones need little memory
# The first byte of a chunk's file is its codec.
PLAIN_CHUNK = b"\x00"
ZSTD_CHUNK = b"\x01"
_MAX_COMPRESSED_RATIO = 0.9  # a chunk that compresses less is stored as it is


class Chunks:
    """A folder of chunks. Any number of processes may read and write it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Returns the path of a chunk's file; raises `NotFound` when the name is not a digest."""
        if not is_digest(name):
            raise NotFound(f"{name!r} is not the name of a chunk; chunk names are 64 hexadecimal digits")
        return self.folder / name[:2] / name[2:]

    def __contains__(self, name: str) -> bool:
        return self.path(name).exists()

    def put(self, data: bytes | memoryview) -> str:
        """Stores bytes and returns their name. Equal bytes are stored once; the file appears only when complete."""
        name = digest(data)
        target = self.path(name)
        if _refresh_existing(target) and self._is_whole(name):
            return name
        make_folder(target.parent)
        with open_atomically(target) as file:
            for part in _encode(data):
                file.write(part)
        return name

    def get(self, name: str) -> bytes:
        """Returns the bytes of a chunk, verified against its name."""
        try:
            raw = self.path(name).read_bytes()
        except FileNotFoundError:
            raise Gone(f"chunk {name[:12]} is not in {self.folder}; copy it back from another home") from None
        data = _decode(raw, name)
        if digest(data) != name:
            raise Damaged(f"chunk {name[:12]} in {self.folder} is damaged; restore it from a backup")
        return data

    def _is_whole(self, name: str) -> bool:
        """Whether the stored bytes are those of the name; damaged ones are written anew while somebody has them."""
        try:
            self.get(name)
        except Damaged:
            return False
        return True

    def put_file(self, path: Path) -> tuple[list[str], int]:
        """Stores a file in pieces; returns their names in order, and the size."""
        names, size = [], 0
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                names.append(self.put(piece))
                size += len(piece)
        return names, size

    def names(self) -> Iterator[str]:
        """Yields the names of all chunks, in order."""
        for folder in sorted(self.folder.glob("[0-9a-f][0-9a-f]")):
            yield from (folder.name + entry.name for entry in sorted(folder.iterdir()) if entry.name[0] != ".")


def is_digest(name: str) -> bool:
    """Whether this is a digest as 64 lower-case hexadecimal digits."""
    return len(name) == 64 and all(c in "0123456789abcdef" for c in name)


def _refresh_existing(target: Path) -> bool:
    """Whether the chunk exists. Its time is reset, so that garbage collection spares it until a line names it."""
    try:
        with target.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # the collector locks it exclusively while it removes the file
            os.utime(file.fileno())
            return os.fstat(file.fileno()).st_nlink > 0
    except (FileNotFoundError, PermissionError):  # another user's file can't be refreshed; ours replaces it
        return False


def _encode(data: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    import zstandard

    # A sample decides: weights look random and barely shrink; text and masks compress well.
    sample = bytes(data[: 64 << 10])
    if len(zstandard.compress(sample, 1)) < _MAX_COMPRESSED_RATIO * len(sample):
        return ZSTD_CHUNK, zstandard.compress(bytes(data), 3)
    return PLAIN_CHUNK, data


def _decode(raw: bytes, name: str) -> bytes:
    import zstandard

    if raw[:1] == PLAIN_CHUNK:
        return raw[1:]
    try:
        return zstandard.decompress(raw[1:])
    except (zstandard.ZstdError, MemoryError) as error:  # a damaged head may ask for any amount of memory
        raise Damaged(f"chunk {name[:12]} is damaged ({error}); restore it from a backup") from error
