"""BLAKE3 hashes of bytes, multithreaded for large inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relive.machine import usable_cpu_count

if TYPE_CHECKING:
    from blake3 import blake3
    from typing_extensions import Buffer

_THREADED_BYTES = 8 << 20


def hasher(size_bytes: int = 0) -> blake3:
    """Returns a BLAKE3 hasher to feed with `update`; uses threads if the expected `size_bytes` is large."""
    from blake3 import blake3

    if size_bytes < _THREADED_BYTES:
        return blake3()
    # Never AUTO: its process-wide thread pool does not survive a fork, and a forked worker that hashes would hang.
    return blake3(max_threads=min(4, usable_cpu_count()))


def digest(data: Buffer, *more: Buffer) -> str:
    """Returns the BLAKE3 hash of the concatenated buffers as 64 hex digits."""
    views = [flat_bytes(part) for part in (data, *more)]
    hash_ = hasher(sum(view.nbytes for view in views))
    for view in views:
        hash_.update(view)
    return hash_.hexdigest()


def flat_bytes(data: Buffer) -> memoryview:
    """Returns the bytes of a buffer as a flat view, copied only if it is not contiguous."""
    view = memoryview(data)
    if not view.nbytes:
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
