"""Variables of running functions: put back from outside, as if the code that was skipped had set them."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Container, Mapping
from types import FrameType
from typing import Any, Protocol

from relive.errors import ReliveError

_MISSING = object()


class Lost:
    """Stands in a variable for a value that was not kept: whoever uses it is told so, rather than given another."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def _refuse(self, *_: Any) -> Any:
        raise ReliveError(
            f"{self._name} is not in the checkpoint, because it is large or can't be kept, and the loop that makes it"
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


class Settling(Protocol):
    """Knows which live objects got the content of restored ones."""

    def settle(self, before: Any, value: Any) -> Any: ...
    def settled(self, value: Any) -> Any: ...


def set_variables(
    frame: FrameType, values: Mapping[str, Any], *, rebound: Container[str], settling: Settling | None = None
) -> None:
    """Give variables of a running function, or of its module, these values.

    What the skipped code would have bound anew is bound anew; what it would only have changed stays the object it is,
    with another content, since others may hold it too.
    """
    own = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    local: dict[str, Any] = {}
    # What stays comes first: a variable that is bound anew may be another name for it.
    for name in sorted(values, key=lambda name: name in rebound):
        is_local = name in own
        before = (frame.f_locals if is_local else frame.f_globals).get(name, _MISSING)
        kept = _placed(before, values[name], settling, anew=name in rebound or before is _MISSING)
        if is_local:
            local[name] = kept
        else:
            frame.f_globals[name] = kept
    if local:
        _set_locals(frame, local)


def _placed(before: Any, value: Any, settling: Settling | None, *, anew: bool) -> Any:
    if settling is None:
        return value if anew else refilled(before, value)
    return settling.settled(value) if anew else settling.settle(before, value)


def _set_locals(frame: FrameType, values: Mapping[str, Any]) -> None:
    frame.f_locals.update(values)
    if sys.version_info < _LOCALS_WRITE_THROUGH:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def refilled(before: Any, value: Any) -> Any:
    """The object that was there, with the content of the other; the other itself where that can't be."""
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
    """Views of an array must go on seeing what it holds, so that it is filled where it is."""
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
