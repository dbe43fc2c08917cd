"""Handlers of arrays of numpy and of the standard library: type, shape and place in their memory."""

from __future__ import annotations

import array
from typing import Any

import numpy as np

from relive.checkpoint.graph.handlers.attributes import attribute_tokens, restore_attributes
from relive.checkpoint.graph.object_tokens import SCALAR, Token, value_token
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Walker


class ArrayHandler(Handler):
    """An array of numpy, also of a subclass: its place in the memory of the array that owns it."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        dtype = obj.dtype
        if dtype.hasobject:
            flat = [obj[at] for at in np.ndindex(obj.shape)] if obj.ndim else [obj[()]]
            return "object", _dtype_token(dtype), obj.shape, walk.refs(flat), attribute_tokens(obj, walk)
        owner = obj
        while type(owner.base) is np.ndarray or isinstance(owner.base, np.ndarray):
            owner = owner.base
        memory, offset = None, 0
        if obj.nbytes:
            address, size_bytes = _extent(owner)
            memory = walk.buffers.add(address, size_bytes, owner)
            offset = obj.__array_interface__["data"][0] - address
        flags = obj.flags.writeable
        extra = attribute_tokens(obj, walk) if type(obj) is not np.ndarray else None
        return "array", _dtype_token(dtype), obj.shape, obj.strides, offset, memory, flags, extra

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        dtype = _dtype(content[1], restore)
        if content[0] == "object":
            made = np.empty(content[2], dtype)
            return made if cls is np.ndarray else made.view(cls)
        _, _, shape, strides, offset, memory, is_writeable, _ = content
        if dtype.hasobject:
            raise CannotRestore("its bytes are no objects")  # numpy would take them for addresses
        if memory is None:
            made = np.empty(shape, dtype)
        else:
            made = np.ndarray(shape, dtype, restore.memory(memory[0]), offset, strides)
        if not is_writeable:
            made.flags.writeable = False
        return made if cls is np.ndarray else made.view(cls)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content[0] == "object":
            values = [restore.value(token) for token in content[3]]
            for at, value in zip(np.ndindex(content[2]), values, strict=True):
                np.ndarray.__setitem__(obj, at, value)
            restore_attributes(obj, content[4], restore)
            return
        _, dtype, shape, strides, offset, memory, is_writeable, extra = content
        if obj.shape != shape or obj.strides != strides or obj.dtype != _dtype(dtype, restore):
            raise CannotRestore("it has another shape or type now")
        if memory is not None and not restore.is_memory_of(memory[0], obj.__array_interface__["data"][0] - offset):
            raise CannotRestore("it is a view of other memory now")
        if obj.flags.writeable is not is_writeable:
            obj.flags.writeable = is_writeable
        if extra is not None:
            restore_attributes(obj, extra, restore)


def _extent(owner: Any) -> tuple[int, int]:
    """Returns the address and the size of the memory that an array covers."""
    address = owner.__array_interface__["data"][0]
    if owner.flags.forc:
        return address, owner.nbytes
    low, high = np.lib.array_utils.byte_bounds(owner)
    return low, high - low


def _dtype_token(dtype: Any) -> Any:
    return dtype.str if dtype.fields is None and dtype.subdtype is None else value_token(dtype)


def _dtype(token: Any, restore: Restorer) -> Any:
    return np.dtype(token) if type(token) is str else restore.value(token)


class FlatIteratorHandler(Handler):
    """The iterator `array.flat`."""

    creates_complete = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return obj.index, walk.ref(obj.base, ".", "base")

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        made = restore.complete_value(content[1]).flat
        for _ in range(content[0]):
            next(made)
        return made


class ScalarHandler(Handler):
    """A scalar of numpy."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        if obj.dtype.hasobject or obj.dtype.fields is not None:
            return value_token(obj)
        return (SCALAR, obj.dtype.str, obj.tobytes())


class NameHandler(Handler):
    """A dtype, device, layout or size: an immutable value of numpy or torch."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return value_token(obj)


class BytesHandler(Handler):
    """A bytearray, or an array of the standard library."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return getattr(obj, "typecode", ""), bytes(obj), attribute_tokens(obj, walk)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        return cls(content[0]) if content[0] else cls()

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if isinstance(obj, array.array):
            del obj[:]
            obj.frombytes(content[1])
        else:
            obj[:] = content[1]
        restore_attributes(obj, content[2], restore)


_array, _scalar, _name, _bytes = ArrayHandler(), ScalarHandler(), NameHandler(), BytesHandler()


def choose_array(kind: type) -> Handler | None:
    if issubclass(kind, np.ndarray):
        return _array
    if kind is np.flatiter:
        return FlatIteratorHandler()
    if issubclass(kind, np.generic):
        return _scalar
    if issubclass(kind, np.dtype):
        return _name
    if issubclass(kind, bytearray | array.array):
        return _bytes
    return None
