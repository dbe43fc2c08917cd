"""Background logging: calls to any writer return once their data is copied, and are made behind, in order."""

from __future__ import annotations

import functools
import types
from typing import Any

from relive.errors import ReliveError
from relive.record.background.process import InProcess
from relive.record.background.proxy import Background
from relive.record.background.thread import InThread

__all__ = ["MAX_BYTES", "Background", "background"]

MAX_BYTES = 512 << 20
_FACTORIES = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


def background(writer: Any, /, *args: Any, max_bytes: int = MAX_BYTES, **kwargs: Any) -> Background:
    """A writer whose calls return as soon as their data is copied; the work is done behind, in the same order.

    Give a class or function with its arguments, and the writer lives in a process of its own, where it can't hold
    training up; give an instance, and a thread of this process makes its calls. While `max_bytes` wait to be written,
    the next call waits too. `flush` and `close` wait for everything, and raise what failed.

    >>> with relive.background(SummaryWriter, "runs/x") as writer:
    ...     writer.add_histogram("weights", net.fc.weight, step)
    """
    if max_bytes <= 0:
        raise ReliveError(f"max_bytes={max_bytes} leaves no room for any call; give a number of bytes above zero")
    if isinstance(writer, _FACTORIES):
        return Background(InProcess(writer, args, kwargs, max_bytes))
    if args or kwargs:
        raise ReliveError(f"{type(writer).__name__} is no class or function to give arguments to; leave them out")
    return Background(InThread(writer, max_bytes))
