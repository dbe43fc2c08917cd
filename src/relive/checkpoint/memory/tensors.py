"""Tensors and arrays as bytes: how each kind is copied out of the training's memory and back into it."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from relive.errors import ReliveError


@dataclass(frozen=True, slots=True)
class LeafType:
    """The type of a leaf: everything but its bytes, in JSON values."""

    library: str  # "torch" or "numpy"
    dtype: Any  # a name, or numpy's description of a structured type
    shape: tuple[int, ...]
    extra: dict[str, Any]  # quantization parameters

    def to_json(self) -> list[Any]:
        return [self.library, self.dtype, list(self.shape), self.extra]

    @classmethod
    def from_json(cls, fields: list[Any]) -> LeafType:
        library, dtype, shape, extra = fields
        return cls(library, dtype, tuple(shape), extra)


class Leaf:
    """A tensor or array of the training."""

    __slots__ = ("is_on_device", "kind", "size_bytes", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.kind = leaf_type_of(source)
        self.size_bytes = _size_bytes(source)
        self.is_on_device = self.kind.library == "torch" and source.device.type != "cpu"

    def flat(self) -> Any:
        """Returns its memory as bytes; None if only the library that owns it can copy it."""
        return flat_bytes(self.source)

    def copy_to(self, target: Any) -> None:
        """Copies a leaf that isn't contiguous host memory: strided, quantized, or on a device."""
        if self.size_bytes:
            _copy_through_library(self.source, self.kind, target)


class TensorPlacement:
    """The addresses and shapes of tensors and arrays, to detect that one was moved or reshaped.

    Each check is a few C loops over all of them, because the training waits.
    """

    def __init__(self, sources: list[Any]) -> None:
        torch = sys.modules.get("torch")
        kind = torch.Tensor if torch is not None else ()
        self._tensors = [source for source in sources if isinstance(source, kind)]
        self._arrays = [source for source in sources if not isinstance(source, kind)]
        self._addresses, self._shapes = self._current_addresses(), self._current_shapes()

    def have_same_addresses(self) -> bool:
        """Whether the memory of each is where it was."""
        return self._current_addresses() == self._addresses

    def have_same_shapes(self) -> bool:
        """Whether each has its shape and contiguity. These rarely change while the address stays the same."""
        return self._current_shapes() == self._shapes

    def _current_addresses(self) -> list[Any]:
        found: list[Any] = [(a.__array_interface__["data"], a.shape, a.strides, a.dtype) for a in self._arrays]
        return [*found, *map(sys.modules["torch"].Tensor.data_ptr, self._tensors)] if self._tensors else found

    def _current_shapes(self) -> list[Any]:
        if not self._tensors:
            return []
        kind = sys.modules["torch"].Tensor
        # Strides don't matter: torch copies non-contiguous tensors by their current strides.
        return [*map(kind.size, self._tensors), *map(kind.is_contiguous, self._tensors)]


def leaf_type_of(source: Any) -> LeafType:
    if isinstance(source, np.ndarray):
        descr: Any = np.lib.format.dtype_to_descr(source.dtype)
        return LeafType("numpy", descr if isinstance(descr, str) else [list(f) for f in descr], source.shape, {})
    extra: dict[str, Any] = {}
    if source.is_quantized:
        extra = {"scale": source.q_scale(), "zero_point": source.q_zero_point()}
    return LeafType("torch", str(source.dtype).removeprefix("torch."), tuple(source.shape), extra)


def _size_bytes(source: Any) -> int:
    return int(source.nbytes) if isinstance(source, np.ndarray) else source.numel() * source.element_size()


def flat_bytes(source: Any) -> Any:
    """Returns the memory of a contiguous tensor or array as bytes; None if it isn't contiguous host memory."""
    if isinstance(source, np.ndarray):
        if not source.flags.c_contiguous or source.nbytes == 0:
            return None
        return source.reshape(-1).view(np.uint8)
    plain = source.detach()
    torch = sys.modules["torch"]
    if plain.device.type != "cpu" or plain.layout != torch.strided or plain.numel() == 0 or plain.is_quantized:
        return None
    if not plain.is_contiguous() or plain.is_conj() or plain.is_neg():
        return None
    if type(plain) is not torch.Tensor and type(plain) is not torch.nn.Parameter:
        plain = plain.as_subclass(torch.Tensor)
    return plain.reshape(-1).view(torch.uint8).numpy()


def _copy_through_library(source: Any, kind: LeafType, target: Any) -> None:
    """Copies strided, quantized or device memory through the library that owns it."""
    if kind.library == "numpy":
        target.view(source.dtype).reshape(source.shape)[...] = source
        return
    torch = sys.modules["torch"]
    plain = source.detach().int_repr() if source.is_quantized else source.detach()
    into = torch.from_numpy(target).view(plain.dtype).view(plain.shape)
    into.copy_(plain, non_blocking=True)


_WRITABLE = 0x200  # PyBUF_WRITE
_memoryview_at = ctypes.pythonapi.PyMemoryView_FromMemory
_memoryview_at.argtypes, _memoryview_at.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object


class StoredTensor(msgspec.Struct, frozen=True, array_like=True):
    """A leaf of a checkpoint: its `LeafType` as JSON, and the numbers of its pieces."""

    form: list[Any]
    pieces: list[int]

    @property
    def kind(self) -> LeafType:
        return LeafType.from_json(self.form)

    def is_like(self, target: Any) -> bool:
        """Whether a live tensor or array has the stored type and shape."""
        library, dtype, shape, extra = self.form
        if type(target) in _plain_tensors() and not extra:  # nearly all leaves, without building a LeafType
            is_dtype = library == "torch" and target.dtype is getattr(sys.modules["torch"], dtype, None)
            return is_dtype and list(target.shape) == shape and not target.is_quantized
        return leaf_type_of(target) == self.kind


def _plain_tensors() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    return (torch.Tensor, torch.nn.Parameter) if torch is not None else ()


def writable_memory(target: Any) -> Any:
    """Returns a writable view of the memory of a live tensor or array; None if it isn't contiguous host memory.

    The view doesn't keep the tensor alive: the caller must.
    """
    if type(target) not in _plain_tensors() or not target.numel():
        return flat_bytes(target)
    if target.device.type != "cpu" or not target.is_contiguous() or target.is_conj() or target.is_neg():
        return None
    return _memoryview_at(target.data_ptr(), target.nbytes, _WRITABLE)


def fill_tensor(target: Any, read: Any, kind: LeafType) -> None:
    """Fills a live tensor or array that isn't contiguous host memory, with bytes from `read(buffer)`."""
    if _size_bytes(target):
        _assign_in_place(target, build_tensor(kind, read))


def _assign_in_place(target: Any, value: Any) -> None:
    if isinstance(target, np.ndarray):
        target[...] = value
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        target.detach().copy_(value)


def build_tensor(kind: LeafType, read: Any) -> Any:
    """Builds a new tensor or array with bytes from `read(buffer)`."""
    if kind.library == "numpy":
        descr: Any = kind.dtype
        array = np.empty(kind.shape, np.dtype(descr if isinstance(descr, str) else [tuple(f) for f in descr]))
        if array.nbytes:
            read(array.reshape(-1).view(np.uint8))
        return array
    import torch

    dtype = getattr(torch, kind.dtype, None)
    if dtype is None:
        raise ReliveError(f"this torch has no dtype {kind.dtype}; restore with the torch version of the run")
    if kind.extra:
        plain = torch.empty(kind.shape, dtype=torch.int8 if kind.dtype == "qint8" else torch.uint8)
        read(plain.reshape(-1).view(torch.uint8).numpy())
        return torch._make_per_tensor_quantized_tensor(plain, kind.extra["scale"], kind.extra["zero_point"])
    tensor = torch.empty(kind.shape, dtype=dtype)
    if tensor.numel():
        read(tensor.reshape(-1).view(torch.uint8).numpy())
    return tensor
