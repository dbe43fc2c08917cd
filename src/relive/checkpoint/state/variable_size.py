"""Which values of variables are small enough to be held in a checkpoint even if nobody may need them."""

from __future__ import annotations

import io
import sys
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import is_project_module
from relive.checkpoint.state.random_state import is_generator

SMALL_BYTES = 1 << 20
SMALL_ITEMS = 1_000
_CODE_AND_FILES = (
    ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, io.IOBase, property, staticmethod, classmethod,
)  # fmt: skip
_DATA_MODULES = frozenset({"builtins", "collections", "numpy", "pathlib", "decimal", "datetime", "fractions", "uuid"})
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)


def is_small(value: Any) -> bool:
    """Whether a value is a number or text, a short list, a small array, or an object of the project that holds them."""
    try:
        return _is_small(value, 0)
    except Exception:  # noqa: BLE001 - a strange object, such as a proxy of a dead one: it is looked at like any other
        return True


def _is_small(value: Any, depth: int) -> bool:
    if _is_array(value):
        return bool(value.nbytes <= SMALL_BYTES >> depth)
    if isinstance(value, _CONTAINERS):
        items = value.values() if isinstance(value, dict) else value
        limit = SMALL_ITEMS >> 2 * depth
        return _is_data(value) and len(value) <= limit and all(_is_small(item, depth + 1) for item in list(items))
    if depth == 0 and _is_project_object(value):
        return all(_is_small(part, 1) for part in _attributes(value).values())
    return value is None or (_is_data(value) and (not hasattr(value, "__len__") or len(value) <= SMALL_ITEMS))


def _is_array(value: Any) -> bool:
    """Whether a value is a dense tensor, or an array without object elements."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and type(value) is numpy.ndarray:
        return not value.dtype.hasobject
    return torch is not None and isinstance(value, torch.Tensor) and value.layout == torch.strided


def _is_data(value: Any) -> bool:
    """Whether a value is a number, text or container, rather than code, a file, an iterator or an object."""
    if isinstance(value, _CODE_AND_FILES) or is_generator(value) or hasattr(type(value), "__next__"):
        return False
    return type(value).__module__ in _DATA_MODULES


def _is_project_object(value: Any) -> bool:
    """Whether a value is an instance of a class of the project, such as a running average; a model is none."""
    torch = sys.modules.get("torch")
    if isinstance(value, _CODE_AND_FILES) or (torch is not None and isinstance(value, torch.nn.Module)):
        return False
    return is_project_module(type(value).__module__)


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
    return {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> tuple[str, ...]:
    own = vars(kind).get("__slots__", ())
    return tuple(name for name in ((own,) if isinstance(own, str) else own) if name not in ("__dict__", "__weakref__"))
