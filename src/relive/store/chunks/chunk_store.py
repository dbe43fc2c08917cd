"""Content-addressed bytes: what is stored once under its hash, and verified when it is read."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from relive.errors import Damaged, Gone, NotFound
from relive.hashing import digest

PIECE_BYTES = 16 << 20  # files are stored in pieces of this size, so that large ones need little memory
PLAIN = b"\x00"
ZSTD = b"\x01"
_WORTH_COMPRESSING = 0.9


class Chunks:
    """A folder of chunks. Any number of processes may put and get at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        if len(name) != 64 or not all(c in "0123456789abcdef" for c in name):
            raise NotFound(f"{name!r} is not the name of a chunk; chunk names are 64 hexadecimal digits")
        return self.folder / name[:2] / name[2:]

    def __contains__(self, name: str) -> bool:
        return self.path(name).exists()

    def put(self, data: bytes | memoryview) -> str:
        """Store bytes; the same bytes are stored once. They are whole on disk before their name exists."""
        name = digest(data)
        target = self.path(name)
        if _renewed(target):
            return name
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{name[:8]}.{os.getpid()}.{threading.get_ident()}")
        try:
            with partial.open("wb") as file:
                for piece in _packed(data):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
        return name

    def get(self, name: str) -> bytes:
        """The bytes of a chunk, checked against its name."""
        try:
            raw = self.path(name).read_bytes()
        except FileNotFoundError:
            raise Gone(f"chunk {name[:12]} is not in {self.folder}; copy it back from another home") from None
        data = _unpacked(raw, name)
        if digest(data) != name:
            raise Damaged(f"chunk {name[:12]} in {self.folder} is damaged; restore it from a backup")
        return data

    def put_file(self, path: Path) -> tuple[list[str], int]:
        """Store a file in pieces: their names in order, and the size."""
        names, size = [], 0
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                names.append(self.put(piece))
                size += len(piece)
        return names, size

    def names(self) -> Iterator[str]:
        for folder in sorted(self.folder.glob("[0-9a-f][0-9a-f]")):
            yield from (folder.name + entry.name for entry in sorted(folder.iterdir()) if entry.name[0] != ".")


def _renewed(target: Path) -> bool:
    """Is the chunk there? Then it becomes as young as a new one: a collector leaves it until a line can name it."""
    try:
        with target.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # a collector holds it alone while it removes the file
            os.utime(file.fileno())
            return os.fstat(file.fileno()).st_nlink > 0
    except (FileNotFoundError, PermissionError):  # another user's can't be renewed: ours takes its place
        return False


def _packed(data: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    import zstandard

    # A sample decides: random-looking weights are not worth the time, text and masks are.
    sample = bytes(data[: 64 << 10])
    if len(zstandard.compress(sample, 1)) < _WORTH_COMPRESSING * len(sample):
        return ZSTD, zstandard.compress(bytes(data), 3)
    return PLAIN, data


def _unpacked(raw: bytes, name: str) -> bytes:
    import zstandard

    if raw[:1] == PLAIN:
        return raw[1:]
    try:
        return zstandard.decompress(raw[1:])
    except zstandard.ZstdError as error:
        raise Damaged(f"chunk {name[:12]} is damaged ({error}); restore it from a backup") from error
