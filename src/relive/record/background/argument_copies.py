"""How the arguments of a call leave the training's memory: whatever may change in place is copied at once."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

_ATOMS = frozenset({str, int, float, complex, bool, bytes, type(None), type, range, slice})


def copied(value: Any) -> Any:
    """The same value, safe from what happens to the original. Tensors come to main memory; what refuses is shared."""
    if type(value) in _ATOMS or callable(value):
        return value
    if is_tensor(value):
        return value.detach().to("cpu", copy=True)
    rebuild = _CONTAINERS.get(type(value))
    if rebuild is not None:
        return rebuild(value)
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - a figure, a handle: its owner can't copy it either
        return value


def _copied_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: copied(item) for key, item in value.items()}


_CONTAINERS: dict[type, Callable[[Any], Any]] = {
    dict: _copied_dict,
    list: lambda value: [copied(item) for item in value],
    tuple: lambda value: tuple(copied(item) for item in value),
}


def is_tensor(value: Any) -> bool:
    """Whoever has a tensor has imported torch; nobody else should wait for it."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def size_bytes(value: Any) -> int:
    """Roughly how much memory a value holds, so that what waits can be counted."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(map(size_bytes, value))
    if isinstance(value, dict):
        return sum(map(size_bytes, value.values()))
    size = getattr(value, "nbytes", 0)
    return size if isinstance(size, int) else 0
