"""`relive.background`: wraps a writer in a proxy and selects a process or a thread to execute its calls."""

from __future__ import annotations

import functools
import types
from typing import Any

from relive.errors import ReliveError
from relive.record.background.writer_process import WriterProcess
from relive.record.background.writer_proxy import Background
from relive.record.background.writer_thread import WriterThread

MAX_BYTES = 512 << 20
_FACTORIES = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


def background(writer: Any, /, *args: Any, max_bytes: int = MAX_BYTES, **kwargs: Any) -> Background:
    """Returns a proxy whose calls run in a process (if `writer` is a factory) or in a thread (if it is an instance)."""
    if max_bytes <= 0:
        raise ReliveError(f"max_bytes={max_bytes} is not positive; give a number of bytes above zero")
    if isinstance(writer, _FACTORIES):
        return Background(WriterProcess(writer, args, kwargs, max_bytes))
    if args or kwargs:
        raise ReliveError(
            f"{type(writer).__name__} is an instance and takes no arguments; leave them out, or pass its class"
        )
    return Background(WriterThread(writer, max_bytes))
