"""`relive.background`: puts a proxy in front of a writer and chooses a process or a thread for its calls."""

from __future__ import annotations

import functools
import types
from typing import Any

from relive.errors import ReliveError
from relive.record.background.writer_process import InProcess
from relive.record.background.writer_proxy import Background
from relive.record.background.writer_thread import InThread

MAX_BYTES = 512 << 20
_FACTORIES = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


def background(writer: Any, /, *args: Any, max_bytes: int = MAX_BYTES, **kwargs: Any) -> Background:
    """A stand-in for a writer, whose calls are made by a process (a factory is given) or a thread (an instance is)."""
    if max_bytes <= 0:
        raise ReliveError(f"max_bytes={max_bytes} leaves no room for any call; give a number of bytes above zero")
    if isinstance(writer, _FACTORIES):
        return Background(InProcess(writer, args, kwargs, max_bytes))
    if args or kwargs:
        raise ReliveError(f"{type(writer).__name__} is no class or function to give arguments to; leave them out")
    return Background(InThread(writer, max_bytes))
