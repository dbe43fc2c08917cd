"""Tensors and arrays as plain bytes: how each kind is copied out of the training's memory, and put back into it."""

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
    """What a leaf is apart from its bytes, in words that JSON can say."""

    library: str  # "torch" or "numpy"
    dtype: Any  # a name, or numpy's description of a structured type
    shape: tuple[int, ...]
    extra: dict[str, Any]  # quantisation

    def form(self) -> list[Any]:
        return [self.library, self.dtype, list(self.shape), self.extra]

    @classmethod
    def of_form(cls, form: list[Any]) -> LeafType:
        library, dtype, shape, extra = form
        return cls(library, dtype, tuple(shape), extra)


class Leaf:
    """A tensor or array of the training."""

    __slots__ = ("is_on_device", "kind", "size_bytes", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.kind = type_of(source)
        self.size_bytes = _size_bytes(source)
        self.is_on_device = self.kind.library == "torch" and source.device.type != "cpu"

    def flat(self) -> Any:
        """Its memory as bytes; None when the library that owns it has to do the copying."""
        return flat_bytes(self.source)

    def copy_to(self, place: Any) -> None:
        """Copy what is not plain memory: strided, quantised, or on a device."""
        if self.size_bytes:
            _copy_anyhow(self.source, self.kind, place)


class TensorSources:
    """Tensors and arrays, and quick looks at how they lie in memory: their content may change while that does not.

    Each look is a few loops in C over all of them at once, because the training waits.
    """

    def __init__(self, sources: list[Any]) -> None:
        torch = sys.modules.get("torch")
        kind = torch.Tensor if torch is not None else ()
        self._tensors = [source for source in sources if isinstance(source, kind)]
        self._arrays = [source for source in sources if not isinstance(source, kind)]
        self._places, self._shapes = self._placed(), self._shaped()

    def are_in_place(self) -> bool:
        """Is the memory of each where it was?"""
        return self._placed() == self._places

    def have_their_shapes(self) -> bool:
        """Is each laid out as it was? This changes while the memory does not only if somebody means it to."""
        return self._shaped() == self._shapes

    def _placed(self) -> list[Any]:
        found: list[Any] = [(a.__array_interface__["data"], a.shape, a.strides, a.dtype) for a in self._arrays]
        return [*found, *map(sys.modules["torch"].Tensor.data_ptr, self._tensors)] if self._tensors else found

    def _shaped(self) -> list[Any]:
        if not self._tensors:
            return []
        kind = sys.modules["torch"].Tensor
        # What isn't contiguous is copied by torch itself, whatever its strides are by then.
        return [*map(kind.size, self._tensors), *map(kind.is_contiguous, self._tensors)]


def type_of(source: Any) -> LeafType:
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
    """The memory of a contiguous tensor or array as bytes; None when it has to be copied in another way."""
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


def _copy_anyhow(source: Any, kind: LeafType, target: Any) -> None:
    """Strided, quantised and device memory, through the library that owns it."""
    if kind.library == "numpy":
        target.view(source.dtype).reshape(source.shape)[...] = source
        return
    torch = sys.modules["torch"]
    plain = source.detach().int_repr() if source.is_quantized else source.detach()
    into = torch.from_numpy(target).view(plain.dtype).view(plain.shape)
    into.copy_(plain, non_blocking=True)


_WRITABLE = 0x200  # PyBUF_WRITE
_memory_at = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_at.argtypes, _memory_at.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object


class StoredTensor(msgspec.Struct, frozen=True, array_like=True):
    """A leaf of a checkpoint: the form of its type, and the numbers of its pieces."""

    form: list[Any]
    pieces: list[int]

    @property
    def kind(self) -> LeafType:
        return LeafType.of_form(self.form)

    def is_like(self, target: Any) -> bool:
        """Is a live tensor or array of the stored type and shape?"""
        library, dtype, shape, extra = self.form
        if type(target) in _plain_tensors() and not extra:  # nearly all are: no need to describe it in words first
            is_dtype = library == "torch" and target.dtype is getattr(sys.modules["torch"], dtype, None)
            return is_dtype and list(target.shape) == shape and not target.is_quantized
        return type_of(target) == self.kind


def _plain_tensors() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    return (torch.Tensor, torch.nn.Parameter) if torch is not None else ()


def window(target: Any) -> Any:
    """The memory of a live tensor or array, to be written to; None when it isn't plain memory.

    It doesn't keep the tensor alive: whoever fills it has to.
    """
    if type(target) not in _plain_tensors() or not target.numel():
        return flat_bytes(target)
    if target.device.type != "cpu" or not target.is_contiguous() or target.is_conj() or target.is_neg():
        return None
    return _memory_at(target.data_ptr(), target.nbytes, _WRITABLE)


def fill(target: Any, read: Any, kind: LeafType) -> None:
    """Fill a live tensor or array that isn't plain memory through `read(buffer)`."""
    if _size_bytes(target):
        _assign(target, made(kind, read))


def _assign(target: Any, value: Any) -> None:
    if isinstance(target, np.ndarray):
        target[...] = value
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        target.detach().copy_(value)


def made(kind: LeafType, read: Any) -> Any:
    """A new tensor or array with the stored content."""
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
