"""Memory of tensors and arrays as nodes of the graph: one for each piece of memory, however many views there are."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Protocol

import numpy as np


class Buffer:
    """A piece of memory. `source` keeps it alive: a storage of torch, or the array of numpy that owns it.

    It is never a tensor, which can be given other memory (`weight.data = ...`) while its own is still looked at.
    Libraries reserve more than they fill: only what tensors and arrays cover, the first `used_bytes`, has content.
    """

    __slots__ = (
        "address", "device", "digest", "is_known", "leaf", "parent", "size_bytes", "source", "used_bytes", "way",
    )  # fmt: skip

    def __init__(
        self, way: int, parent: int, address: int, size_bytes: int, source: Any, device: str, used_bytes: int
    ) -> None:
        self.way = way
        self.parent = parent
        self.address = address
        self.size_bytes = size_bytes
        self.used_bytes = used_bytes
        self.is_known = False  # to an earlier walk
        self.source = source
        self.device = device
        self.digest: int | None = None  # None: not hashed
        self.leaf: int | None = None  # the number of its copy in a checkpoint

    @property
    def is_on_host(self) -> bool:
        return self.device == "cpu"

    def view(self) -> Any:
        """Returns the bytes that are used: an array of numpy, or a tensor if they are on a device."""
        return self.whole()[: self.used_bytes]

    def whole(self) -> Any:
        """Returns all bytes."""
        if not self.is_on_host:
            torch = sys.modules["torch"]
            return torch.empty(0, dtype=torch.uint8, device=self.device).set_(self.storage())
        memory: Any = (ctypes.c_char * self.size_bytes).from_address(self.address)
        return np.frombuffer(memory, np.uint8)

    def storage(self) -> Any:
        """Returns the storage of torch that it is."""
        return self.source

    def release(self) -> None:
        self.source = None


class GivesWays(Protocol):
    """The walk that meets the buffers."""

    @property
    def parent(self) -> int: ...
    def known_buffer(self, address: int, size_bytes: int) -> int | None: ...
    def new_way(self, form: str, key: Any) -> int: ...


class BufferTable:
    """The buffers of one walk, each once."""

    def __init__(self, walk: GivesWays) -> None:
        self._walk = walk
        self._by_address: dict[int, Buffer] = {}
        self.found: list[Buffer] = []

    def of_way(self, way: int) -> Buffer:
        return next(one for one in reversed(self.found) if one.way == way)

    def add_remembered(self, address: int, size_bytes: int, source: Any, way: int, used_bytes: int) -> bool:
        """Adds memory on the host that an earlier walk met; returns whether it has the same way in this one."""
        found = self._by_address.get(address)
        if found is None:
            found = Buffer(way, self._walk.parent, address, size_bytes, source, "cpu", used_bytes)
            self._by_address[address] = found
            self.found.append(found)
        elif found.way != way:
            return False
        elif found.used_bytes < used_bytes:
            found.used_bytes = used_bytes
        return True

    def add(
        self, address: int, size_bytes: int, source: Any, device: str = "cpu", used_bytes: int | None = None
    ) -> tuple[int]:
        """Returns the token of the memory at an address, of which `used_bytes` are used: all, if it is None."""
        found = self._by_address.get(address)
        used = size_bytes if used_bytes is None else min(used_bytes, size_bytes)
        if found is None or found.size_bytes < size_bytes:
            walk = self._walk
            known = walk.known_buffer(address, size_bytes)
            way = known if known is not None else walk.new_way(".", "(memory)")
            found = self._by_address[address] = Buffer(way, walk.parent, address, size_bytes, source, device, used)
            found.is_known = known is not None
            self.found.append(found)
        elif found.used_bytes < used:
            found.used_bytes = used
        return (found.way,)
