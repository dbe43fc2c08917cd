"""numpy and torch scalars as a plain number and a slot kind that records their dtype."""

from __future__ import annotations

import sys
from typing import Any

from relive.store.journal import slot_kinds

_SIGN = 1 << 63


def unwrap_scalar(value: Any) -> tuple[int | float, int] | None:
    """Returns (number, slot kind) of a numpy scalar or a 0-dimensional torch tensor; None for any other value."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _unwrap(value.dtype.name, value, slot_kinds.NUMPY_KINDS)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.ndim == 0 and not value.is_quantized:
        return _unwrap(str(value.dtype).removeprefix("torch."), value, slot_kinds.TORCH_KINDS)
    return None


def _unwrap(dtype: str, value: Any, table: dict[str, int]) -> tuple[int | float, int] | None:
    kind = table.get(dtype)
    if kind is None:
        return None
    number = value.item()
    if type(number) is float:
        return number, kind
    # A slot holds a signed 64-bit integer; the upper half of uint64 is stored with the same bits.
    return int(number) - 2 * _SIGN if number >= _SIGN else int(number), kind
