"""numpy and torch scalars: the number inside, and the kind that remembers what they were."""

from __future__ import annotations

import sys
from typing import Any

from relive.store.journal import slot_kinds

_SIGN = 1 << 63


def scalar_of(value: Any) -> tuple[int | float, int] | None:
    """(number, kind) of a numpy scalar or a torch tensor without dimensions; None for everything else."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return _known(value.dtype.name, value, slot_kinds.NUMPY_KINDS)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.ndim == 0 and not value.is_quantized:
        return _known(str(value.dtype).removeprefix("torch."), value, slot_kinds.TORCH_KINDS)
    return None


def _known(dtype: str, value: Any, table: dict[str, int]) -> tuple[int | float, int] | None:
    kind = table.get(dtype)
    if kind is None:
        return None
    number = value.item()
    if type(number) is float:
        return number, kind
    # The slot holds 64 signed bits; the upper half of uint64 is kept as the same bits.
    return int(number) - 2 * _SIGN if number >= _SIGN else int(number), kind
