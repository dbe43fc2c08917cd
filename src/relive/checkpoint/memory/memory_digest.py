"""A digest of the memory that a training changes, cheap enough to be taken in every iteration."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

_BYTES_PER_S = 4e9  # of hashing, on a slow machine
_LEAF_S = 3e-6


class PieceOfMemory(Protocol):
    """What is known of a buffer."""

    size_bytes: int

    @property
    def is_on_host(self) -> bool: ...


class MemoryDigest:
    """Hashes the parameters and named arrays that existed when the loop began, while they stay where they are.

    The recording and the replaying process find the same ones in the same order, so that their digests can be compared.
    """

    def __init__(self, buffers: Iterable[tuple[PieceOfMemory, Any]]) -> None:
        """`buffers` come with the tensor or array that each was met in. Arrays can't be referred to unnoticed."""
        self._sources: list[tuple[weakref.ref[Any], int, int]] = []  # storage, and its part
        self.size_bytes = 0
        for buffer, holder in buffers:
            if buffer.is_on_host and _is_plain_tensor(holder):
                begin = holder.storage_offset() * holder.element_size()
                self._sources.append((weakref.ref(holder.untyped_storage()), begin, begin + holder.nbytes))
                self.size_bytes += buffer.size_bytes

    @property
    def leaves(self) -> int:
        return len(self._sources)

    @property
    def cost_s(self) -> float:
        """The estimated time of taking it."""
        return self.size_bytes / _BYTES_PER_S + _LEAF_S * len(self._sources)

    def take(self) -> str | None:
        """Returns the digest now; None if there is nothing to hash, or an object is gone."""
        from xxhash import xxh3_64

        found = xxh3_64()
        for source, begin, end in self._sources:
            storage = source()
            if storage is None or storage.nbytes() < end:
                return None
            found.update(_bytes_of(storage)[begin:end])
        return found.hexdigest() if self._sources else None


def _is_plain_tensor(holder: Any) -> bool:
    return hasattr(holder, "untyped_storage") and holder.is_contiguous() and holder.numel() > 0


def _bytes_of(storage: Any) -> Any:
    memory: Any = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    return np.frombuffer(memory, np.uint8)
