"""Tells exceptions of the user's signal handlers from relive's own: a handler may run while relive's code does."""

from __future__ import annotations

import functools
import signal
from types import CodeType
from typing import Any


def raised_by_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler raised this. A time limit or preemption must reach the script, not become a warning."""
    codes = {code for number in signal.valid_signals() if (code := _handler_code(signal.getsignal(number))) is not None}
    trace = error.__traceback__ if codes else None
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _handler_code(handler: Any) -> CodeType | None:
    """Returns the code object of a handler: a function, a method, a partial, or an object with `__call__`."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # SIG_DFL and SIG_IGN
        return None
    function = getattr(handler, "__func__", handler)
    code = getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
