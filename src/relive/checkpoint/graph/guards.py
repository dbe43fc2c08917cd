"""Tells later whether an object at some address is still the one that was met there, without keeping it alive.

A weak reference does, but it can be noticed: torch refuses to swap tensors that have one. So tensors are known by
their storage; parameters that have been given other memory are known by the place at which they are held.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np

Place = tuple[int, str]  # the way of what holds an object, and the label there


class MemoryGuard:
    """Guards a tensor."""

    __slots__ = ("_place", "_storage")

    def __init__(self, obj: Any, place: Place | None) -> None:
        storage = _storage_of(obj)
        self._storage = weakref.ref(storage) if storage is not None else None
        # Other tensors come and go, and a new one may be at the address of the one before in the same place.
        self._place = place if type(obj).__name__ == "Parameter" else None

    def is_of(self, obj: Any, place: Place | None) -> bool:
        """Whether an object of the same type, at the same address, is the guarded one."""
        if self._place is not None and self._place == place:
            return True
        storage = self._storage() if self._storage is not None else None
        return storage is not None and storage is _storage_of(obj)


def guard_of(obj: Any, place: Place | None = None) -> Any:
    """Returns what tells later whether an object at the same address is the same one; an object itself, if need be."""
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(type(obj), torch.Tensor):
        return MemoryGuard(obj, place)
    try:
        return weakref.ref(obj)
    except TypeError:
        return obj


def is_still(guard: Any, obj: Any, place: Place | None = None) -> bool:
    if type(guard) is weakref.ref:
        return guard() is obj
    return guard is obj or (type(guard) is MemoryGuard and guard.is_of(obj, place))


def keeps_alive(guard: Any) -> bool:
    """Whether a guard is the object itself, which then can't be deleted."""
    return type(guard) is not weakref.ref and type(guard) is not MemoryGuard


def address_of(source: Any) -> int:
    """Returns where the memory of a storage or array begins."""
    if isinstance(source, np.ndarray):
        return int(np.lib.array_utils.byte_bounds(source)[0]) if source.size else 0
    return int(source.data_ptr())


def is_still_at(guard: Any, address: int) -> bool:
    """Whether the owner of a piece of memory is still there, with its memory at this address."""
    holder = guard() if type(guard) is weakref.ref else guard
    return holder is not None and address_of(holder) == address


def held_source(guard: Any, address: int, size_bytes: int) -> Any:
    """Returns what owns a piece of memory, if it is still all there; None otherwise, and if that can't be told."""
    holder = guard() if type(guard) is weakref.ref else None
    if holder is None or isinstance(holder, np.ndarray):
        return None
    return holder if address_of(holder) == address and int(holder.nbytes()) >= size_bytes else None


def _storage_of(obj: Any) -> Any:
    """Returns the storage of a tensor; None if it has none."""
    try:
        return obj.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse, or without memory
        return None
