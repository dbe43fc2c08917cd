"""A result ↔ JSON and chunks: exactly what was returned comes back, and without pickle wherever that is possible."""

from __future__ import annotations

import base64
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relive.store.chunks import PIECE_BYTES
from relive.store.journal import decode_value, encode_value

INLINE_BYTES = 2_048  # larger bytes become chunks, as text of this size does in a journal
MAX_DEPTH = 32
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

_decode = msgspec.json.Decoder().decode

Put = Callable[[Any], str]
Get = Callable[[str], bytes]


class Unstorable(Exception):
    """A result that can't be kept."""


class _NotPlain(Exception):
    """A value that only pickle can keep as it is."""


@dataclass(slots=True)
class StoredResult:
    """A value as it is kept."""

    form: bytes
    chunks: list[str] = field(default_factory=list)
    size_bytes: int = 0
    is_pickled: bool = False


def store_value(value: Any, put: Put) -> StoredResult:
    """Keep a value; raises `Unstorable` when nothing can. The chunks are on disk when this returns."""
    stored = StoredResult(b"")

    def put_counted(data: Any) -> str:
        stored.size_bytes += len(data)
        stored.chunks.append(name := put(data))
        return name

    try:
        form = _Forms(put_counted).form(value, 0)
    except _NotPlain:
        stored.chunks, stored.size_bytes, stored.is_pickled = [], 0, True
        form = {"$pickle": _pickled(value, put_counted)}
    stored.form = msgspec.json.encode(form)
    stored.size_bytes += len(stored.form)
    return stored


def read_value(form: bytes, get: Get) -> Any:
    """The value that `store_value` was given. Runs code if it was pickled: the caller knows whether it may."""
    read = _decode(form)
    return read if b'"$' not in form else _read(read, get)


# --- without pickle --------------------------------------------------------------------------------------------------


class _Forms:
    """Writes plain values, arrays and tensors. What is there twice is left to pickle, which keeps it one thing."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._seen: dict[int, Any] = {}  # the values too, so that no id is used twice

    def form(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return encode_value(value, self._put)
        if id(value) in self._seen or depth > MAX_DEPTH:
            raise _NotPlain
        self._seen[id(value)] = value
        if kind is list:
            return [self.form(item, depth + 1) for item in value]
        if kind is tuple:
            return {"$tuple": [self.form(item, depth + 1) for item in value]}
        if kind is dict:
            return self._dict(value, depth)
        if kind in (set, frozenset) and all(type(item) in _PLAIN for item in value):
            return encode_value(value, self._put)
        np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if np is not None and kind is np.ndarray:
            return self._array(value)
        if np is not None and isinstance(value, np.generic) and value.dtype.kind in "biufcmM":
            return encode_value(value, self._put)
        if torch is not None and kind is torch.Tensor:
            return self._tensor(value, torch)
        raise _NotPlain

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if all(type(key) is str and not key.startswith("$") and key.isascii() for key in value):
            return {key: self.form(item, depth + 1) for key, item in value.items()}
        pairs = [[self.form(key, depth + 1), self.form(item, depth + 1)] for key, item in value.items()]
        return {"$map": pairs}

    def _array(self, value: Any) -> Any:
        import numpy as np

        if value.dtype.hasobject or value.dtype.metadata or not value.flags.writeable or value.dtype.kind == "T":
            raise _NotPlain
        order = _order(value.strides, value.shape)
        inner = value.transpose(order) if order else value
        if not inner.flags.c_contiguous:
            inner, order = np.ascontiguousarray(inner), []
        descr = np.lib.format.dtype_to_descr(value.dtype)
        if np.dtype(_fields(descr)) != value.dtype:
            raise _NotPlain
        return {"$dense": {"dtype": descr, "shape": list(inner.shape), "order": order, **self._raw(_bytes_of(inner))}}

    def _tensor(self, value: Any, torch: Any) -> Any:
        if value.requires_grad and not value.is_leaf:
            raise Unstorable("it is part of a graph of gradients, which can't be kept; return result.detach()")
        if (
            value.device.type != "cpu" or value.layout != torch.strided or value.is_quantized or value.is_nested
            or value.is_conj() or value.is_neg() or value.__dict__
        ):  # fmt: skip
            raise _NotPlain
        bare = value.detach()
        order = _order(bare.stride(), bare.shape)
        inner = bare.permute(order) if order else bare
        if not inner.is_contiguous():
            inner, order = inner.contiguous(), []
        raw = inner.reshape(-1).view(torch.uint8).numpy() if inner.numel() else b""
        return {
            "$tensor": {
                "dtype": str(value.dtype).removeprefix("torch."), "shape": list(inner.shape), "order": order,
                "grad": value.requires_grad, **self._raw(raw),
            }
        }  # fmt: skip

    def _raw(self, data: Any) -> dict[str, Any]:
        return _pieces(memoryview(data).cast("B") if len(data) else memoryview(b""), self._put)


def _order(strides: tuple[int, ...], shape: Any) -> list[int]:
    """The order of the axes in memory, if it isn't the usual one: a transposed matrix comes back as one."""
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    return [] if order == list(range(len(shape))) or 0 in strides else order


def _bytes_of(array: Any) -> Any:
    flat = array.reshape(-1)
    return flat.view("u1") if flat.nbytes else b""


def _pieces(data: memoryview, put: Put) -> dict[str, Any]:
    if len(data) <= INLINE_BYTES:
        return {"data": base64.b64encode(data).decode()}
    return {"chunks": [put(data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)]}


def _unpieced(form: dict[str, Any], get: Get) -> bytearray:
    """The bytes, in memory that may be written to: what a hit gives is the caller's own."""
    if "data" in form:
        return bytearray(base64.b64decode(form["data"]))
    joined = bytearray()
    for name in form["chunks"]:
        joined += get(name)
    return joined


def _fields(descr: Any) -> Any:
    """numpy's description of a structured type wants tuples, which JSON turned into lists."""
    if isinstance(descr, str):
        return descr
    return [(tuple(one[0]) if isinstance(one[0], list) else one[0], _fields(one[1]), *map(tuple, one[2:])) for one in descr]  # fmt: skip  # noqa: E501


# --- with pickle -----------------------------------------------------------------------------------------------------


def _pickled(value: Any, put: Put) -> dict[str, Any]:
    """Large buffers go beside the pickle, so that equal ones are stored once."""
    buffers: list[memoryview] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # in pieces: pickle copies it
            return True
        if len(raw) <= INLINE_BYTES:
            return True
        buffers.append(raw)
        return False

    try:
        data = pickle.dumps(value, protocol=5, buffer_callback=take)
    except Exception as error:  # whatever the user's types do when they are pickled
        raise Unstorable(f"{type(error).__name__}: {error}") from error
    return {"body": _pieces(memoryview(data), put), "buffers": [_pieces(raw, put) for raw in buffers]}


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(form: Any, get: Get) -> Any:
    if isinstance(form, list):
        return [_read(item, get) for item in form]
    if not isinstance(form, dict):
        return form
    tag = next(iter(form), "")
    reader = _READERS.get(tag) if len(form) == 1 else None
    if reader is not None:
        return reader(form[tag], get)
    if len(form) == 1 and tag.startswith("$"):
        return decode_value(form, get)
    return {key: _read(item, get) for key, item in form.items()}


def _read_dense(form: dict[str, Any], get: Get) -> Any:
    import numpy as np

    array = np.frombuffer(_unpieced(form, get), dtype=np.dtype(_fields(form["dtype"]))).reshape(form["shape"])
    return array.transpose(np.argsort(form["order"])) if form["order"] else array


def _read_tensor(form: dict[str, Any], get: Get) -> Any:
    import torch

    dtype, raw = getattr(torch, form["dtype"]), _unpieced(form, get)
    tensor = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    tensor = tensor.reshape(form["shape"])
    if form["order"]:
        tensor = tensor.permute(*(form["order"].index(axis) for axis in range(len(form["order"]))))
    return tensor.requires_grad_() if form["grad"] else tensor


def _read_pickle(form: dict[str, Any], get: Get) -> Any:
    return pickle.loads(_unpieced(form["body"], get), buffers=[_unpieced(one, get) for one in form["buffers"]])


_READERS: dict[str, Callable[[Any, Get], Any]] = {
    "$tuple": lambda form, get: tuple(_read(item, get) for item in form),
    "$map": lambda form, get: {_read(key, get): _read(item, get) for key, item in form},
    "$dense": _read_dense,
    "$tensor": _read_tensor,
    "$pickle": _read_pickle,
}
