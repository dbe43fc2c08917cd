"""Whose exception it is: what a signal handler raises is the user's, even if we were at work when the signal came."""

from __future__ import annotations

import functools
import signal
from types import CodeType
from typing import Any


def is_users(error: BaseException) -> bool:
    """Did a signal handler raise this? A time limit or a preemption must reach the script, not end as our warning."""
    codes = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    trace = error.__traceback__ if codes else None
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """The code that runs when the handler is called: of a function, a method, a partial, or an object's call."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # SIG_DFL and SIG_IGN
        return None
    function = getattr(handler, "__func__", handler)
    code = getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
