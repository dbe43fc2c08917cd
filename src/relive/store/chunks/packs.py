"""Pack files: pieces of checkpoints, many to a file, each stored once and verified when it is read.

A pack is the magic, the pieces one after the other, a footer that lists them as JSON, the footer's length (8 bytes,
little-endian), and the magic again. It gets its final name only when all of it is on disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from relive.errors import Damaged, Gone, ReliveError
from relive.hashing import hasher
from relive.store.chunks.offload_notes import fetch_back, is_offloaded, offloaded_packs
from relive.store.durable_files import publish

PACK_MAGIC = b"relpack\x01"
PLAIN, ZSTD = 0, 1
_SAMPLE_BYTES = 16 << 10
_MAX_COMPRESSED_RATIO = 0.7  # compressing takes time from the training, so it has to save enough
_BUFFER_BYTES = 1 << 20  # larger pieces are written without being copied to the buffer
_COUNTER = itertools.count()  # makes pack names unique within a process
_LOCK_POLL_S = 0.02
_READ_BYTES = 4 << 20


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A byte range of a pack: where it is, how it is stored, and the hash of its decoded content."""

    pack: str
    offset: int
    stored_bytes: int
    size_bytes: int
    codec: int
    digest: str


def piece_digest(data: Any) -> str:
    """Returns 128 bits of xxh3: as fast as memory and enough to tell pieces apart, but no defence against forgery."""
    import xxhash

    return str(xxhash.xxh3_128_hexdigest(data))


def pack_file_digest(path: Path) -> str:
    """Returns the BLAKE3 hash of a pack's whole file, which identifies it between homes and servers."""
    hash_ = hasher()
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            hash_.update(part)
    return hash_.hexdigest()


class Packs:
    """A folder of packs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._moved: dict[tuple[str, int], Piece] = {}

    def names(self) -> list[str]:
        """Returns the names of the packs in this folder, oldest first."""
        try:
            return sorted(name for name in os.listdir(self.folder) if name.endswith(".pack") and name[0] != ".")
        except FileNotFoundError:
            return []

    def offloaded(self) -> set[str]:
        """Returns the packs that are kept outside the home; reading one fetches it back."""
        return offloaded_packs(self.folder)

    def mark_used(self, name: str) -> None:
        """Sets the time of last use: the least recently used packs are offloaded first."""
        with contextlib.suppress(OSError):  # a pack in a read-only folder is never offloaded
            os.utime(self.folder / name)

    def last_used(self, name: str) -> int:
        """Returns when a pack was written, fetched back or read for a restore, in microseconds since 1970."""
        try:
            return (self.folder / name).stat().st_mtime_ns // 1000
        except FileNotFoundError:
            return 0

    def pieces(self, name: str) -> list[Piece]:
        """Returns the pieces that the footer of a pack lists; none when the file isn't a complete pack."""
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(-16, os.SEEK_END)
                length, magic = int.from_bytes(file.read(8), "little"), file.read(8)
                if magic != PACK_MAGIC:
                    return []
                file.seek(-16 - length, os.SEEK_END)
                rows = _decode_footer(file.read(length))
        except (OSError, ValueError):
            return []
        return [Piece(name, *row) for row in rows]

    def pieces_by_digest(self) -> dict[tuple[str, int], Piece]:
        """Returns every piece of every pack by its hash and size."""
        return {(piece.digest, piece.size_bytes): piece for name in self.names() for piece in self.pieces(name)}

    @contextlib.contextmanager
    def shared_lock(self) -> Iterator[None]:
        """Keeps packs from being removed: a writer holds it from finding a stored piece to naming it in a journal."""
        with self._locked(fcntl.LOCK_SH):
            yield

    def read_lock(self) -> contextlib.AbstractContextManager[None]:
        """Keeps packs from being removed while they are read. In a read-only folder no lock is taken or created."""
        lock = self.folder / "lock"
        may_lock = os.access(lock if lock.exists() else self.folder, os.W_OK)
        return self.shared_lock() if may_lock else contextlib.nullcontext()

    @contextlib.contextmanager
    def exclusive_lock(self, *, patience_s: float) -> Iterator[None]:
        """Locks out writers of checkpoints. Waiting for it never makes a writer wait."""
        with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB, patience_s):
            yield

    @contextlib.contextmanager
    def _locked(self, how: int, patience_s: float = 0.0) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file:
            deadline = time.monotonic() + patience_s
            while not _try_lock(file, how):
                if time.monotonic() > deadline:
                    raise ReliveError(f"checkpoints are being written to {self.folder} all the time; try again later")
                time.sleep(_LOCK_POLL_S)
            try:
                yield
            finally:
                # Closing isn't enough: a process that was forked meanwhile has the file open as well.
                fcntl.flock(file, fcntl.LOCK_UN)

    def find(self, piece: Piece) -> Piece:
        """Returns where a piece is now: in its own pack, here or offloaded, or in another if its pack was rewritten."""
        if (self.folder / piece.pack).exists() or is_offloaded(self.folder, piece.pack):
            return piece
        key = piece.digest, piece.size_bytes
        moved = self._moved.get(key)
        if moved is None or not (self.folder / moved.pack).exists():
            self._moved = self.pieces_by_digest()
            moved = self._moved.get(key)
        if moved is None:
            raise Gone(f"pack {piece.pack} is gone; restore an earlier checkpoint")
        return moved

    def read_into(self, piece: Piece, buffer: Any) -> None:
        """Fills a writable buffer of the piece's size and verifies it."""
        try:
            fd = os.open(self.folder / piece.pack, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self.read_into(self._find_locally(piece), buffer)
        try:
            if piece.codec == PLAIN:
                _read_fully(fd, memoryview(buffer), piece)
            else:
                decompress_into(os.pread(fd, piece.stored_bytes, piece.offset), buffer, piece)
        finally:
            os.close(fd)
        verify(buffer, piece)
        return None

    def _find_locally(self, piece: Piece) -> Piece:
        """Returns where a piece is now, after fetching back its pack if that is offloaded."""
        found = self.find(piece)
        if not (self.folder / found.pack).exists():
            fetch_back(self.folder, found.pack)
        return found

    def read(self, piece: Piece) -> bytes:
        """Returns the verified content of a piece."""
        buffer = bytearray(piece.size_bytes)
        self.read_into(piece, buffer)
        return bytes(buffer)


_decode_footer = msgspec.json.Decoder(list[tuple[int, int, int, int, str]]).decode


def _try_lock(file: Any, how: int) -> bool:
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    return True


def _read_fully(fd: int, view: memoryview, piece: Piece) -> None:
    done = 0
    while done < piece.size_bytes:
        count = os.preadv(fd, [view[done:]], piece.offset + done)
        if count == 0:
            raise Damaged(f"pack {piece.pack} ends early; restore an earlier checkpoint")
        done += count


def decompress_into(stored: Any, buffer: Any, piece: Piece) -> None:
    """Fills a buffer from the stored bytes of a compressed piece."""
    import zstandard

    try:
        plain = zstandard.decompress(stored, max_output_size=piece.size_bytes)
    except (zstandard.ZstdError, MemoryError) as error:  # a damaged head may ask for any amount of memory
        raise Damaged(f"pack {piece.pack} is damaged ({error}); restore an earlier checkpoint") from error
    if len(plain) != piece.size_bytes:
        raise _damaged(piece)
    memoryview(buffer)[:] = plain


def verify(data: Any, piece: Piece) -> None:
    """Compares the content of a piece with its hash; raises `Damaged` when they differ."""
    if piece_digest(data) != piece.digest:
        raise _damaged(piece)


def _damaged(piece: Piece) -> Damaged:
    return Damaged(f"pack {piece.pack} is damaged at byte {piece.offset}; restore an earlier checkpoint")


class PackWriter:
    """Writes one pack; a context manager that leaves no file behind if it fails or nothing was added."""

    def __init__(self, packs: Packs) -> None:
        packs.folder.mkdir(parents=True, exist_ok=True)
        self.name = f"{time.time_ns():016x}-{os.getpid()}-{next(_COUNTER)}.pack"
        self._target = packs.folder / self.name
        self._partial = packs.folder / f".{self.name}.partial"
        self._file: Any = None
        self._pieces: list[Piece] = []
        self._at = len(PACK_MAGIC)
        self.stored_bytes = 0

    def __enter__(self) -> PackWriter:
        return self

    def add(self, data: Any, digest: str) -> Piece:
        """Appends bytes whose hash is known; returns the piece."""
        if self._file is None:
            self._file = self._partial.open("wb", buffering=_BUFFER_BYTES)
            self._file.write(PACK_MAGIC)
        codec, stored = _encode(data)
        self._file.write(stored)
        piece = Piece(self.name, self._at, len(stored), len(data), codec, digest)
        self._pieces.append(piece)
        self._at += len(stored)
        self.stored_bytes += len(stored)
        return piece

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if self._file is None:
            return
        try:
            if failed is None:
                self._finish()
        finally:
            try:
                self._file.close()  # flushes the buffer, which may fail once more
            finally:
                self._partial.unlink(missing_ok=True)

    def _finish(self) -> None:
        rows = [(p.offset, p.stored_bytes, p.size_bytes, p.codec, p.digest) for p in self._pieces]
        footer = msgspec.json.encode(rows)
        self._file.write(footer + len(footer).to_bytes(8, "little") + PACK_MAGIC)
        self._file.flush()
        publish(self._partial, self._target)  # the name must be as durable as the line that will mention it


def _encode(data: Any) -> tuple[int, Any]:
    import zstandard

    # A sample from the middle decides: headers and zeros at the beginning are not representative.
    middle = max(0, len(data) // 2 - _SAMPLE_BYTES // 2)
    sample = bytes(data[middle : middle + _SAMPLE_BYTES])
    if len(sample) < 512 or len(zstandard.compress(sample, 1)) > _MAX_COMPRESSED_RATIO * len(sample):
        return PLAIN, data
    compressed = zstandard.compress(bytes(data), 1)
    return (ZSTD, compressed) if len(compressed) < _MAX_COMPRESSED_RATIO * len(data) else (PLAIN, data)
