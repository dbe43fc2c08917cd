"""Tensors and arrays as plain bytes: how each kind is copied out of the training's memory, and put back into it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from relive.checkpoint.copying import Part, parts_of
from relive.errors import ReliveError

ALIGN_BYTES = 64


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
    """A tensor or array of the training, and the bytes of the arena that it is copied to."""

    __slots__ = ("_address", "copied", "is_on_device", "kind", "parts", "size_bytes", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.kind = type_of(source)
        self.size_bytes = _size_bytes(source)
        self.is_on_device = self.kind.library == "torch" and source.device.type != "cpu"
        self._address = address(source)
        self.parts: list[Part] = []  # copies of plain memory; none when the library that owns it has to do it
        self.copied: Any = None  # the bytes of the arena

    def lay(self, arena: Any) -> None:
        """Say where in the arena the copy goes."""
        plain = flat_bytes(self.source)
        self.parts = parts_of(arena, plain) if plain is not None else []
        self.copied = arena

    def copy_anyhow(self) -> None:
        """Copy what is not plain memory: strided, quantised, or on a device."""
        if self.size_bytes and not self.parts:
            _copy_anyhow(self.source, self.kind, self.copied)

    def is_same(self) -> bool:
        """Does the source still have its memory where it was? Its content may have changed."""
        return self._address == address(self.source)


def type_of(source: Any) -> LeafType:
    if isinstance(source, np.ndarray):
        descr: Any = np.lib.format.dtype_to_descr(source.dtype)
        return LeafType("numpy", descr if isinstance(descr, str) else [list(f) for f in descr], source.shape, {})
    extra: dict[str, Any] = {}
    if source.is_quantized:
        extra = {"scale": source.q_scale(), "zero_point": source.q_zero_point()}
    return LeafType("torch", str(source.dtype).removeprefix("torch."), tuple(source.shape), extra)


def address(source: Any) -> tuple[int, int]:
    if isinstance(source, np.ndarray):
        return source.__array_interface__["data"][0], source.nbytes
    return source.data_ptr(), source.numel()


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


def put_back(target: Any, read: Any, kind: LeafType) -> bool:
    """Fill a live tensor or array through `read(buffer)`; False when it isn't of the stored type and shape."""
    if type_of(target) != kind:
        return False
    direct = flat_bytes(target)
    if direct is not None:
        read(direct)
    elif _size_bytes(target):
        _assign(target, made(kind, read))
    return True


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
