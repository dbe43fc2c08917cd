"""How the arguments of a call leave the training's memory: arrays are copied at once, into memory used before."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGN_BYTES = 64
PAGE_BYTES = 4096
_ATOMS = frozenset({str, int, float, bool, type(None), bytes})
_PLAIN_ARRAYS = (np.ndarray, np.memmap)


@dataclass(frozen=True, slots=True)
class Form:
    """What an array is apart from its bytes."""

    library: str  # "torch" or "numpy"
    dtype: Any  # the name of torch's, or numpy's own
    shape: tuple[int, ...]
    size_bytes: int


def form_of(array: Any) -> Form | None:
    """The form of an array or tensor that is nothing but its bytes; None for everything else."""
    if type(array) in _PLAIN_ARRAYS:
        return None if array.dtype.hasobject else Form("numpy", array.dtype, array.shape, array.nbytes)
    if not is_tensor(array) or not _is_plain_tensor(array):
        return None
    name = str(array.dtype).removeprefix("torch.")
    return Form("torch", name, tuple(array.shape), array.numel() * array.element_size())


def is_tensor(value: Any) -> bool:
    """Whoever has a tensor has imported torch; nobody else should wait for it."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def _is_plain_tensor(tensor: Any) -> bool:
    import torch

    known = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return (
        known
        and tensor.layout == torch.strided
        and not (tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta")
    )


def copy_into(memory: Any, array: Any, form: Form) -> Any:
    """Copy an array into bytes, waiting for its device if need be; gives the copy."""
    view = view_of(memory, form)
    if form.library == "numpy":
        np.copyto(view, array)
    else:
        view.copy_(array.detach())
    return view


def view_of(memory: Any, form: Form) -> Any:
    """Bytes seen as the array that was copied into them."""
    if form.library == "numpy":
        return memory.view(form.dtype).reshape(form.shape)
    import torch

    return torch.from_numpy(memory).view(getattr(torch, form.dtype)).view(form.shape)


def aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def mapped(value: Any, replace: Callable[[Any, Form], Any]) -> Any:
    """The same value with its plain arrays replaced; containers are new, odd arrays copied, the rest is itself."""
    if type(value) in _ATOMS:
        return value
    form = form_of(value)
    if form is not None:
        return replace(value, form)
    if isinstance(value, tuple):
        return _mapped_tuple(value, replace)
    if isinstance(value, dict):
        return _refilled(value, {key: mapped(item, replace) for key, item in value.items()})
    if isinstance(value, list):
        return _refilled(value, [mapped(item, replace) for item in value])
    return _copied(value)


def _mapped_tuple(value: tuple[Any, ...], replace: Callable[[Any, Form], Any]) -> Any:
    items = [mapped(item, replace) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _refilled(value: Any, content: Any) -> Any:
    """Content in a container like the one that it came from: ordered, with a default, or of the user's own class."""
    if type(value) in (dict, list):
        return content
    container = copy.copy(value)
    if isinstance(value, dict):
        container.update(content)
    else:
        container[:] = content
    return container


def _copied(value: Any) -> Any:
    """What is no container: odd arrays and buffers that change in place are copied, all else is by reference."""
    if isinstance(value, np.ndarray | bytearray | set):
        return value.copy()
    if is_tensor(value):
        return value.detach().clone()
    return value


def text_bytes(value: Any) -> int:
    """Roughly how much memory the texts in a value hold, so that what waits can be counted."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(text_bytes(item) for item in value)
    return sum(text_bytes(item) for item in value.values()) if isinstance(value, dict) else 0


class Lease:
    """A buffer lent to one call."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def is_kept(self) -> bool:
        """Does somebody else hold on to the buffer, as a writer does that collects arrays before it writes them?"""
        return sys.getrefcount(self.buffer) > _ALONE


_ALONE = sys.getrefcount(Lease(np.empty(1, np.uint8)).buffer)


class Pool:
    """Buffers that are used again and again: touching fresh memory costs several times as much as the copy."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._idle: dict[int, list[Any]] = {}
        self.held_bytes = 0  # lent and idle

    def lend(self, size_bytes: int) -> Lease:
        """A buffer of at least this size."""
        size = _rounded(size_bytes)
        with self._lock:
            if idle := self._idle.get(size):
                return Lease(idle.pop())
            self._make_room(size)
            self.held_bytes += size
        return Lease(np.empty(size, np.uint8))

    def take_back(self, lease: Lease) -> None:
        """Use the buffer again, unless somebody kept a part of it: then it is theirs."""
        with self._lock:
            if lease.is_kept():
                self.held_bytes -= len(lease.buffer)
            else:
                self._idle.setdefault(len(lease.buffer), []).append(lease.buffer)

    def _make_room(self, size: int) -> None:
        """Let go of idle buffers, largest first, while one more would be over the limit."""
        for idle_size in sorted(self._idle, reverse=True):
            while self._idle[idle_size] and self.held_bytes + size > self._limit_bytes:
                self._idle[idle_size].pop()
                self.held_bytes -= idle_size


def _rounded(size_bytes: int) -> int:
    """Eight sizes for each power of two: tensors of about the same size share buffers, and little is wasted."""
    step = max(PAGE_BYTES, 1 << max(size_bytes.bit_length() - 4, 0))
    return -(-max(size_bytes, 1) // step) * step
