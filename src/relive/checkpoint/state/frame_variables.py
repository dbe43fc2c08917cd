"""Binds variables of running functions, as if the skipped code had assigned them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from relive.errors import ReliveError

_LOCALS_WRITE_THROUGH = (3, 13)


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


def set_variables(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Binds local variables of a running function."""
    local_names = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    _set_locals(frame, {name: value for name, value in values.items() if name in local_names})


def _set_locals(frame: FrameType, values: Mapping[str, Any]) -> None:
    frame.f_locals.update(values)
    if sys.version_info < _LOCALS_WRITE_THROUGH:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
