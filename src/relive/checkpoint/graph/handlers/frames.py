"""Handlers of data frames: pickled without copying their columns."""

from __future__ import annotations

import pickle
import sys
from typing import Any

from relive.checkpoint.graph.handlers.attributes import own_dict
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Walker


class FrameHandler(Handler):
    """A DataFrame, Series or Index of pandas."""

    creates_complete = True

    def content(self, obj: Any, walk: Walker) -> Any:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
        return data, tuple(bytes(buffer.raw()) for buffer in buffers)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        data, buffers = content
        return pickle.loads(data, buffers=[bytearray(buffer) for buffer in buffers])

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        fresh = self.create("", content, restore)
        own, new = own_dict(obj), own_dict(fresh)
        if own is None or new is None:
            raise CannotRestore("it can't be changed in place")
        own.clear()
        own.update(new)


def choose_frame(kind: type) -> Handler | None:
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "Index"):
        return None
    return FrameHandler() if issubclass(kind, pandas.DataFrame | pandas.Series | pandas.Index) else None
