"""A digest of the memory that a training changes, cheap enough to be taken in every iteration."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from relive.checkpoint.graph.buffers import Buffer

_BYTES_PER_S = 4e9  # of hashing, on a slow machine
_LEAF_S = 3e-6


class MemoryDigest:
    """Hashes the parameters and named arrays that existed when the loop began, while they stay where they are.

    The recording and the replaying process find the same ones in the same order, so that their digests can be compared.
    """

    def __init__(self, buffers: Iterable[tuple[Buffer, Any]]) -> None:
        """`buffers` come with the tensor or array that each was met in."""
        self._sources: list[tuple[weakref.ref[Any], int]] = []
        self.size_bytes = 0
        for buffer, holder in buffers:
            if buffer.is_on_host and _has_address(holder):
                self._sources.append((weakref.ref(holder), buffer.size_bytes))
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
        for source, _ in self._sources:
            holder = source()
            if holder is None:
                return None
            found.update(_bytes_of(holder))
        return found.hexdigest() if self._sources else None


def _has_address(holder: Any) -> bool:
    if isinstance(holder, np.ndarray):
        return bool(holder.flags.c_contiguous and holder.nbytes)
    return hasattr(holder, "untyped_storage") and holder.is_contiguous() and holder.numel() > 0


def _bytes_of(holder: Any) -> Any:
    if isinstance(holder, np.ndarray):
        return np.ascontiguousarray(holder).reshape(-1).view(np.uint8)
    import torch

    flat = holder.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy()
