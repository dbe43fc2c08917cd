"""The BLAKE3 hash of bytes, and when threads pay off."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blake3 import blake3
    from typing_extensions import Buffer

_THREADED_BYTES = 8 << 20


def hasher(size_bytes: int = 0) -> blake3:
    """A BLAKE3 hasher to feed with `update`; `size_bytes` is what is to come, and decides whether threads pay off."""
    from blake3 import blake3

    if size_bytes < _THREADED_BYTES:
        return blake3()
    # Never AUTO: its process-wide thread pool does not survive a fork, and a forked worker that hashes would hang.
    return blake3(max_threads=min(4, os.cpu_count() or 1))


def digest(data: Buffer, *more: Buffer) -> str:
    """The BLAKE3 hash of these bytes, one after the other, as 64 hex digits."""
    views = [flat_bytes(part) for part in (data, *more)]
    hash_ = hasher(sum(view.nbytes for view in views))
    for view in views:
        hash_.update(view)
    return hash_.hexdigest()


def flat_bytes(data: Buffer) -> memoryview:
    """The same bytes as one row."""
    view = memoryview(data)
    if not view.nbytes:
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
