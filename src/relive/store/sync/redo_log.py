"""The redo log of the intake: all accepted ranges go to one file, so that one fsync makes a whole batch durable.

A frame is the lengths of its header and its body (u32 each), a hash of both (u64), the header as JSON, and the body.
A torn frame and all frames after it are ignored: they were never acknowledged.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

_PREFIX = struct.Struct("<IIQ")
_MAX_PARTS = 1_000  # the system takes 1,024 parts in one call
Part = bytes | memoryview
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class FrameHeader(msgspec.Struct, frozen=True):
    """Where the body of a frame belongs; the body is bytes of slots followed by bytes of lines."""

    run: str
    stem: str
    slots_at: int
    slots_bytes: int
    lines_at: int


class RedoLog:
    """A redo log in one file, written by one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size_bytes = os.fstat(self._fd).st_size

    def append(self, frames: Iterable[tuple[FrameHeader, Sequence[Part]]]) -> None:
        """Appends frames, each body in parts, and forces them to disk. If that fails, the log is unchanged."""
        parts = [part for header, body in frames for part in _encode_frame(header, body)]
        try:
            end = _write_all(self._fd, parts, self.size_bytes)
            _fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes = end

    def frames(self) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yields the frames of the log, up to the first torn one."""
        with self.path.open("rb") as file:
            while len(raw := file.read(_PREFIX.size)) == _PREFIX.size:
                header_bytes, body_bytes, hash_ = _PREFIX.unpack(raw)
                if header_bytes + body_bytes > self.size_bytes:
                    return
                content = file.read(header_bytes + body_bytes)
                if len(content) < header_bytes + body_bytes or _hash(content) != hash_:
                    return
                yield msgspec.json.decode(content[:header_bytes], type=FrameHeader), content[header_bytes:]

    def clear(self) -> None:
        """Empties the log; the content of its frames must be on disk in the journals by now."""
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self.size_bytes = 0

    def close(self) -> None:
        os.close(self._fd)


def _encode_frame(header: FrameHeader, body: Sequence[Part]) -> Iterator[Part]:
    raw = msgspec.json.encode(header)
    yield _PREFIX.pack(len(raw), sum(map(len, body)), _hash(raw, *body))
    yield raw
    yield from filter(len, body)


def _hash(*parts: Part) -> int:
    import xxhash

    hash_ = xxhash.xxh3_64()
    for part in parts:
        hash_.update(part)
    return int(hash_.intdigest())


def _write_all(fd: int, parts: Sequence[Part], at: int) -> int:
    """Writes parts one after the other; returns the offset at which they end."""
    for first in range(0, len(parts), _MAX_PARTS):
        views = [memoryview(part) for part in parts[first : first + _MAX_PARTS]]
        while views:
            written = os.pwritev(fd, views, at)
            at += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]
    return at
