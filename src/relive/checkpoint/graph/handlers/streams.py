"""Handlers of streams and loggers: streams in memory by content, files by their position, log handlers by type."""

from __future__ import annotations

import contextvars
import io
import logging
from typing import Any

from relive.checkpoint.graph.handlers.attributes import attribute_tokens, restore_attributes
from relive.checkpoint.graph.registry import (
    WRITTEN_FILE,
    CannotRestore,
    Handler,
    Restorer,
    Unreadable,
    Walker,
    type_name,
)

_STANDARD_STREAMS = 2
_LINES = "lines"


class MemoryStreamHandler(Handler):
    """A StringIO or BytesIO."""

    def content(self, obj: Any, walk: Walker) -> Any:
        return None if obj.closed else (obj.getvalue(), obj.tell())

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return restore.find_class(kind)()

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content is None:
            obj.close()
            return
        obj.seek(0)
        obj.truncate()
        obj.write(content[0])
        obj.seek(content[1])


class FileHandler(Handler):
    """A file: one that is only read has a position; what was written is nowhere to be seen before it is flushed."""

    def content(self, obj: Any, walk: Walker) -> Any:
        if obj.closed:
            return ("closed",)
        raw = _raw(obj)
        if raw is None:
            raise Unreadable("a stream")
        if raw.fileno() <= _STANDARD_STREAMS:
            return ("standard",)
        if obj.writable():
            raise Unreadable(WRITTEN_FILE)
        if not obj.seekable():
            raise Unreadable("a stream that can't be put back")
        try:
            return "read", obj.tell()
        except OSError:  # in the middle of a loop over its lines: only how much of it was read in blocks can be seen
            return _LINES, raw.tell()

    def can_restore(self, content: Any) -> bool:
        return content is None or content[0] != _LINES

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        raise CannotRestore("a file that was opened in the loop")

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content[0] == "closed":
            obj.close()
        elif content[0] == "read":
            obj.seek(content[1])
        elif content[0] == _LINES:
            raise CannotRestore("a file in the middle of a loop over its lines can't be put to a position")


def _raw(file: Any) -> Any:
    inner = file
    while inner is not None and not isinstance(inner, io.FileIO):
        inner = getattr(inner, "buffer", None) or getattr(inner, "raw", None)
    return inner


class ContextVariableHandler(Handler):
    """A context variable: its value in the current context."""

    def content(self, obj: Any, walk: Walker) -> Any:
        missing = object()
        value = obj.get(missing)
        return () if value is missing else (walk.ref(value, ".", "get()"),)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content:
            obj.set(restore.value(content[0]))


_memory, _file, _variable = MemoryStreamHandler(), FileHandler(), ContextVariableHandler()


class LogHandlers:
    """Stands for the handlers of a logger, which lead to whatever it writes to."""

    def __init__(self, logger: Any) -> None:
        self.kinds = tuple(type_name(type(one)) for one in logger.handlers)


class LogHandlersHandler(Handler):
    """The types of the handlers. If the loop adds or removes one, that can't be repeated."""

    is_restorable = False

    def content(self, obj: Any, walk: Walker) -> Any:
        return obj.kinds


class LoggerHandler(Handler):
    """A logger: its level, the attributes that the script gives it, and which handlers it has."""

    def content(self, obj: Any, walk: Walker) -> Any:
        settings = obj.level, obj.propagate, obj.disabled
        return settings, walk.ref(walk.made(LogHandlers(obj)), ".", "handlers"), attribute_tokens(obj, walk)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        level, obj.propagate, obj.disabled = content[0]
        if obj.level != level:
            obj.setLevel(level)
        restore_attributes(obj, content[2], restore)


_logger, _log_handlers = LoggerHandler(), LogHandlersHandler()


def choose_stream(kind: type) -> Handler | None:
    if issubclass(kind, io.StringIO | io.BytesIO):
        return _memory
    if issubclass(kind, io.IOBase):
        return _file
    if issubclass(kind, logging.Logger):
        return _logger
    if kind is LogHandlers:
        return _log_handlers
    return _variable if issubclass(kind, contextvars.ContextVar) else None
