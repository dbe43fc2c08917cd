"""Variables of running functions: put back from outside, as if the code that was skipped had set them."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Container, Mapping
from types import FrameType
from typing import Any

_MISSING = object()
_LOCALS_WRITE_THROUGH = (3, 13)


def set_variables(frame: FrameType, values: Mapping[str, Any], *, rebound: Container[str]) -> None:
    """Give variables of a running function, or of its module, these values.

    What the skipped code would have bound anew is bound anew; what it would only have changed stays the object it is,
    with another content, since others may hold it too.
    """
    own = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    local: dict[str, Any] = {}
    for name, value in values.items():
        is_local = name in own
        holder = frame.f_locals if is_local else frame.f_globals
        before = holder.get(name, _MISSING)
        kept = value if name in rebound or before is _MISSING else refilled(before, value)
        if is_local:
            local[name] = kept
        else:
            frame.f_globals[name] = kept
    if local:
        _set_locals(frame, local)


def _set_locals(frame: FrameType, values: Mapping[str, Any]) -> None:
    frame.f_locals.update(values)
    if sys.version_info < _LOCALS_WRITE_THROUGH:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def refilled(before: Any, value: Any) -> Any:
    """The object that was there, with the content of the other; the other itself where that can't be."""
    if type(before) is not type(value):
        return value
    if isinstance(before, list):
        before[:] = value
    elif isinstance(before, dict | set):
        before.clear()
        before.update(value)
    elif isinstance(before, deque):
        before.clear()
        before.extend(value)
    elif hasattr(before, "__dict__") and type(before).__module__ not in ("builtins", "numpy", "torch"):
        before.__dict__.clear()
        before.__dict__.update(value.__dict__)
    else:
        return value
    return before
