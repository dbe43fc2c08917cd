"""Numbers in JSON without loss: NaN and infinities as words, integers beyond 2^53 as text with a prefix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

INT_PREFIX = "$int:"
_EXACT = 1 << 53  # the largest integer up to which JavaScript represents every integer


def wire_value(value: Any) -> Any:
    """Returns a value that JSON and JavaScript carry without loss."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else f"{INT_PREFIX}{value}"
    if isinstance(value, float):
        return value if math.isfinite(value) else _word(value)
    if isinstance(value, dict):
        return {str(key): wire_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [wire_value(one) for one in value]
    return str(value)


def wire_floats(values: NDArray[Any]) -> list[Any]:
    """Returns floats, with words for those that JSON lacks."""
    plain: list[Any] = values.tolist()
    if np.isfinite(values).all():
        return plain
    return [value if math.isfinite(value) else _word(value) for value in plain]


def null_if_nan(values: NDArray[Any]) -> list[Any]:
    """Returns floats, null for buckets without any finite value."""
    plain: list[Any] = values.tolist()
    if np.isfinite(values).all():
        return plain
    return [value if math.isfinite(value) else None for value in plain]


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
