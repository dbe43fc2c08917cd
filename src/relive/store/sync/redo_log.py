"""The log that makes an answer durable: every range that was taken, in one file, so that one fsync serves them all.

A frame is the lengths of its head and its body (u32 each), a hash of both (u64), the head as JSON, and the body. Frames
after the first one that is torn don't count: nobody was told that they are there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

_LENGTHS = struct.Struct("<IIQ")
_AT_ONCE = 1_000  # the system takes 1,024 parts in one call
Part = bytes | memoryview
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Head(msgspec.Struct, frozen=True):
    """Where the body of a frame belongs: some bytes of slots, then some of lines."""

    run: str
    stem: str
    slots_at: int
    slots_bytes: int
    lines_at: int


class RedoLog:
    """One file, written by one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size_bytes = os.fstat(self._fd).st_size

    def append(self, frames: Iterable[tuple[Head, Sequence[Part]]]) -> None:
        """Add frames, each body in parts, and force them to disk. If that fails, the log is as it was."""
        parts = [part for head, body in frames for part in _packed(head, body)]
        try:
            end = _write_all(self._fd, parts, self.size_bytes)
            _fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes = end

    def frames(self) -> Iterator[tuple[Head, bytes]]:
        """What is in the log, up to the first frame that is not whole."""
        with self.path.open("rb") as file:
            while len(raw := file.read(_LENGTHS.size)) == _LENGTHS.size:
                head_bytes, body_bytes, hash_ = _LENGTHS.unpack(raw)
                if head_bytes + body_bytes > self.size_bytes:
                    return
                content = file.read(head_bytes + body_bytes)
                if len(content) < head_bytes + body_bytes or _hash(content) != hash_:
                    return
                yield msgspec.json.decode(content[:head_bytes], type=Head), content[head_bytes:]

    def clear(self) -> None:
        """Forget everything; what the frames held must be on disk in its own place by now."""
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self.size_bytes = 0

    def close(self) -> None:
        os.close(self._fd)


def _packed(head: Head, body: Sequence[Part]) -> Iterator[Part]:
    raw = msgspec.json.encode(head)
    yield _LENGTHS.pack(len(raw), sum(map(len, body)), _hash(raw, *body))
    yield raw
    yield from filter(len, body)


def _hash(*parts: Part) -> int:
    import xxhash

    hash_ = xxhash.xxh3_64()
    for part in parts:
        hash_.update(part)
    return int(hash_.intdigest())


def _write_all(fd: int, parts: Sequence[Part], at: int) -> int:
    """Write parts one after the other; gives where they end."""
    for first in range(0, len(parts), _AT_ONCE):
        together = [memoryview(part) for part in parts[first : first + _AT_ONCE]]
        while together:
            written = os.pwritev(fd, together, at)
            at += written
            while together and written >= len(together[0]):
                written -= len(together.pop(0))
            if written:
                together[0] = together[0][written:]
    return at
