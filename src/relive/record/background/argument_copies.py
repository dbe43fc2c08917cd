"""Copies the arguments of deferred calls, so that the training may change the originals in place."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

_ATOMS = frozenset({str, int, float, complex, bool, bytes, type(None), type, range, slice})


def copy_argument(value: Any) -> Any:
    """Returns a deep copy. Tensors are moved to main memory; an object that can't be copied is returned as it is."""
    if type(value) in _ATOMS or callable(value):
        return value
    if is_tensor(value):
        return value.detach().to("cpu", copy=True)
    rebuild = _CONTAINER_COPIERS.get(type(value))
    if rebuild is not None:
        return rebuild(value)
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - a figure or a handle, for example
        return value


def _copy_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: copy_argument(item) for key, item in value.items()}


_CONTAINER_COPIERS: dict[type, Callable[[Any], Any]] = {
    dict: _copy_dict,
    list: lambda value: [copy_argument(item) for item in value],
    tuple: lambda value: tuple(copy_argument(item) for item in value),
}


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor. Does not import torch: if there is a tensor, torch is imported."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def size_bytes(value: Any) -> int:
    """Estimates the memory that a value takes, to bound the size of the queue."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(map(size_bytes, value))
    if isinstance(value, dict):
        return sum(map(size_bytes, value.values()))
    size = getattr(value, "nbytes", 0)
    return size if isinstance(size, int) else 0
