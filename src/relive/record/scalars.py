"""Scalars and 0-dimensional arrays of numpy, torch, JAX and others, as a number and a slot kind that has the dtype."""

from __future__ import annotations

import sys
from typing import Any

from relive.store.journal import slot_kinds

_SIGN = 1 << 63


def unwrap_scalar(value: Any) -> tuple[int | float, int] | None:
    """Returns (number, slot kind) of a scalar or a 0-dimensional array of any library; None for any other value."""
    dtype = scalar_dtype(value)
    if dtype is None:
        return None
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _unwrap(slot_kinds.TORCH_KINDS[dtype], value.item())
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        return _unwrap(slot_kinds.NUMPY_KINDS[dtype], value.item())
    try:
        number = value.item()
    except Exception:  # noqa: BLE001 - a traced or deleted array has no number; it is described instead
        return None
    return _unwrap(slot_kinds.NUMPY_KINDS[dtype], number) if isinstance(number, int | float) else None


def scalar_dtype(value: Any) -> str | None:
    """Returns the dtype of a scalar or a 0-dimensional array, if a slot can hold it; None for any other value."""
    kind = type(value)
    # The type has them: asking any object of a user's for attributes may run code.
    if not (hasattr(kind, "shape") and hasattr(kind, "dtype") and hasattr(kind, "item")):
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.ndim or value.is_quantized:
            return None
        name = str(value.dtype).removeprefix("torch.")
        return name if name in slot_kinds.TORCH_KINDS else None
    if tuple(value.shape) != ():
        return None
    name = str(getattr(value.dtype, "name", ""))
    return name if name in slot_kinds.NUMPY_KINDS else None


def _unwrap(kind: int, number: int | float) -> tuple[int | float, int]:
    if type(number) is float:
        return number, kind
    # A slot holds a signed 64-bit integer; the upper half of uint64 is stored with the same bits.
    return int(number) - 2 * _SIGN if number >= _SIGN else int(number), kind
