"""Restores variables of running functions, as if the skipped code had assigned them."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Container, Mapping
from types import FrameType
from typing import Any, Protocol

from relive.errors import ReliveError

_MISSING = object()


class UncapturedValue:
    """Placeholder for a variable that was not captured: every use of it raises an error with the reason."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _refuse(self, *_: Any) -> Any:
        raise ReliveError(
            f"{self._name} is not in the checkpoint, because it is large or can't be kept, and the loop that creates it"
            " was skipped; replay with --from-start"
        )

    def __getattr__(self, attribute: str) -> Any:
        return self._refuse()

    __call__ = __float__ = __int__ = __bool__ = __len__ = __iter__ = __getitem__ = __setitem__ = __add__ = __radd__ = (
        __sub__
    ) = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __lt__ = __gt__ = __le__ = __ge__ = __eq__ = (
        __hash__
    ) = __neg__ = __abs__ = __str__ = __repr__ = __format__ = __reduce_ex__ = _refuse


_LOCALS_WRITE_THROUGH = (3, 13)


class LiveObjects(Protocol):
    """Keeps track of the live objects that restored values were written into."""

    def refill(self, before: Any, value: Any) -> Any: ...
    def live_object_for(self, value: Any) -> Any: ...


def restore_variables(
    frame: FrameType, values: Mapping[str, Any], *, rebound: Container[str], live: LiveObjects | None = None
) -> None:
    """Restores variables of a running function, or of its module.

    Variables that the skipped code would have bound are bound. Objects that it would only have mutated are refilled,
    since other references to them may exist.
    """
    local_names = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    local: dict[str, Any] = {}
    # Refilled objects come first: a variable that is bound may refer to one of them.
    for name in sorted(values, key=lambda name: name in rebound):
        is_local = name in local_names
        before = (frame.f_locals if is_local else frame.f_globals).get(name, _MISSING)
        restored = _restored_object(before, values[name], live, rebind=name in rebound or before is _MISSING)
        if is_local:
            local[name] = restored
        else:
            frame.f_globals[name] = restored
    if local:
        _set_locals(frame, local)


def set_variables(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Binds local variables of a running function."""
    local_names = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    _set_locals(frame, {name: value for name, value in values.items() if name in local_names})


def _restored_object(before: Any, value: Any, live: LiveObjects | None, *, rebind: bool) -> Any:
    if live is None:
        return value if rebind else refill(before, value)
    return live.live_object_for(value) if rebind else live.refill(before, value)


def _set_locals(frame: FrameType, values: Mapping[str, Any]) -> None:
    frame.f_locals.update(values)
    if sys.version_info < _LOCALS_WRITE_THROUGH:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def refill(before: Any, value: Any) -> Any:
    """Writes the content of `value` into `before` and returns that; returns `value` if it can't be done in place."""
    if before is value or type(before) is not type(value):
        return value
    if isinstance(before, list):
        before[:] = value
    elif isinstance(before, dict | set):
        before.clear()
        before.update(value)
    elif isinstance(before, deque):
        before.clear()
        before.extend(value)
    elif isinstance(before, bytearray):
        before[:] = value
    elif not _fill_array(before, value):
        return value
    return before


def _fill_array(before: Any, value: Any) -> bool:
    """Fills an array or tensor in place, since views of it may exist; returns whether that was possible."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    is_array = numpy is not None and isinstance(before, numpy.ndarray)
    is_tensor = torch is not None and isinstance(before, torch.Tensor)
    if not (is_array or is_tensor) or before.shape != value.shape or before.dtype != value.dtype:
        return False
    if is_array:
        if not before.flags.writeable:
            return False
        before[...] = value
    else:
        with torch.no_grad():  # type: ignore[union-attr]
            before.copy_(value)
    return True
