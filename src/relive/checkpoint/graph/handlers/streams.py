"""Handlers of streams: text and bytes in memory by their content, files that are read by their position."""

from __future__ import annotations

import contextvars
import io
from typing import Any

from relive.checkpoint.graph.registry import WRITTEN_FILE, CannotRestore, Handler, Restorer, Unreadable, Walker

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


def choose_stream(kind: type) -> Handler | None:
    if issubclass(kind, io.StringIO | io.BytesIO):
        return _memory
    if issubclass(kind, io.IOBase):
        return _file
    return _variable if issubclass(kind, contextvars.ContextVar) else None
