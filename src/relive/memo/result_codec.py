"""A result as JSON and chunks: decoding gives exactly the value returned, without pickle wherever possible."""

from __future__ import annotations

import base64
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relive.errors import Damaged
from relive.store.chunks import PIECE_BYTES
from relive.store.journal import decode_value, encode_value

INLINE_BYTES = 2_048  # larger bytes become chunks, as text of this size does in a journal
MAX_DEPTH = 32
_SCALAR_TYPES = (type(None), bool, int, float, complex, str, bytes)

_decode_json = msgspec.json.Decoder().decode

Put = Callable[[Any], str]
Get = Callable[[str], bytes]


class Unstorable(Exception):
    """A result that can't be stored."""


class _NotPlain(Exception):
    """A value that only pickle can store exactly."""


@dataclass(slots=True)
class StoredResult:
    """An encoded value: its JSON form, and the chunks that the form refers to."""

    form: bytes
    chunks: list[str] = field(default_factory=list)
    size_bytes: int = 0
    is_pickled: bool = False


def store_value(value: Any, put: Put) -> StoredResult:
    """Encodes a value; raises `Unstorable` if pickle fails too. The chunks are written when this returns."""
    stored = StoredResult(b"")

    def put_counted(data: Any) -> str:
        stored.size_bytes += len(data)
        stored.chunks.append(name := put(data))
        return name

    try:
        form = _PlainEncoder(put_counted).encode(value, 0)
    except _NotPlain:
        stored.chunks, stored.size_bytes, stored.is_pickled = [], 0, True
        form = {"$pickle": _encode_pickle(value, put_counted)}
    stored.form = msgspec.json.encode(form)
    stored.size_bytes += len(stored.form)
    return stored


def read_value(form: bytes, get: Get, *, allow_pickle: bool) -> Any:
    """Decodes a value. Unpickling runs code: it is allowed only for entries that this user wrote, or trusts."""
    read = _decode_json(form)
    if not allow_pickle and b"$pickle" in form and _has_pickle(read):
        raise Damaged("it holds a pickle, and says that it holds none")
    return read if b'"$' not in form else _decode_form(read, get)


def _has_pickle(form: Any) -> bool:
    if isinstance(form, dict):
        return "$pickle" in form or any(map(_has_pickle, form.values()))
    return isinstance(form, list) and any(map(_has_pickle, form))


# --- without pickle --------------------------------------------------------------------------------------------------


class _PlainEncoder:
    """Encodes scalars, containers, arrays and tensors. Shared references are left to pickle, which preserves them."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._seen: dict[int, Any] = {}  # id → value; holding the value keeps its id from being reused

    def encode(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _SCALAR_TYPES:
            return encode_value(value, self._put)
        if id(value) in self._seen or depth > MAX_DEPTH:
            raise _NotPlain
        self._seen[id(value)] = value
        if kind is list:
            return [self.encode(item, depth + 1) for item in value]
        if kind is tuple:
            return {"$tuple": [self.encode(item, depth + 1) for item in value]}
        if kind is dict:
            return self._encode_dict(value, depth)
        if kind in (set, frozenset) and all(type(item) in _SCALAR_TYPES for item in value):
            return encode_value(value, self._put)
        np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if np is not None and kind is np.ndarray:
            return self._encode_array(value)
        if np is not None and isinstance(value, np.generic) and value.dtype.kind in "biufcmM":
            return encode_value(value, self._put)
        if torch is not None and kind is torch.Tensor:
            return self._encode_tensor(value, torch)
        raise _NotPlain

    def _encode_dict(self, value: dict[Any, Any], depth: int) -> Any:
        if all(type(key) is str and not key.startswith("$") and key.isascii() for key in value):
            return {key: self.encode(item, depth + 1) for key, item in value.items()}
        pairs = [[self.encode(key, depth + 1), self.encode(item, depth + 1)] for key, item in value.items()]
        return {"$map": pairs}

    def _encode_array(self, value: Any) -> Any:
        import numpy as np

        if value.dtype.hasobject or value.dtype.metadata or not value.flags.writeable or value.dtype.kind == "T":
            raise _NotPlain
        order = _axis_order(value.strides, value.shape)
        inner = value.transpose(order) if order else value
        if not inner.flags.c_contiguous:
            inner, order = np.ascontiguousarray(inner), []
        descr = np.lib.format.dtype_to_descr(value.dtype)
        if np.dtype(_tuple_descr(descr)) != value.dtype:
            raise _NotPlain
        return {
            "$dense": {
                "dtype": descr,
                "shape": list(inner.shape),
                "order": order,
                **self._encode_bytes(_flat_view(inner)),
            }
        }

    def _encode_tensor(self, value: Any, torch: Any) -> Any:
        if value.requires_grad and not value.is_leaf:
            raise Unstorable("it is part of an autograd graph, which can't be stored; return result.detach()")
        if (
            value.device.type != "cpu" or value.layout != torch.strided or value.is_quantized or value.is_nested
            or value.is_conj() or value.is_neg() or value.__dict__
        ):  # fmt: skip
            raise _NotPlain
        bare = value.detach()
        order = _axis_order(bare.stride(), bare.shape)
        inner = bare.permute(order) if order else bare
        if not inner.is_contiguous():
            inner, order = inner.contiguous(), []
        raw = inner.reshape(-1).view(torch.uint8).numpy() if inner.numel() else b""
        return {
            "$tensor": {
                "dtype": str(value.dtype).removeprefix("torch."), "shape": list(inner.shape), "order": order,
                "grad": value.requires_grad, **self._encode_bytes(raw),
            }
        }  # fmt: skip

    def _encode_bytes(self, data: Any) -> dict[str, Any]:
        return _split_pieces(memoryview(data).cast("B") if len(data) else memoryview(b""), self._put)


def _axis_order(strides: tuple[int, ...], shape: Any) -> list[int]:
    """Returns the memory order of the axes, or [] if it is C order; decoding restores a transposed layout."""
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    return [] if order == list(range(len(shape))) or 0 in strides else order


def _flat_view(array: Any) -> Any:
    flat = array.reshape(-1)
    return flat.view("u1") if flat.nbytes else b""


def _split_pieces(data: memoryview, put: Put) -> dict[str, Any]:
    if len(data) <= INLINE_BYTES:
        return {"data": base64.b64encode(data).decode()}
    return {"chunks": [put(data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)]}


def _join_pieces(form: dict[str, Any], get: Get) -> bytearray:
    """Returns the bytes in writable memory, because the caller owns the value of a hit."""
    if "data" in form:
        return bytearray(base64.b64decode(form["data"]))
    joined = bytearray()
    for name in form["chunks"]:
        joined += get(name)
    return joined


def _tuple_descr(descr: Any) -> Any:
    """Restores the tuples of a structured dtype description, which JSON has turned into lists."""
    if isinstance(descr, str):
        return descr
    return [(tuple(one[0]) if isinstance(one[0], list) else one[0], _tuple_descr(one[1]), *map(tuple, one[2:])) for one in descr]  # fmt: skip  # noqa: E501


# --- with pickle -----------------------------------------------------------------------------------------------------


def _encode_pickle(value: Any, put: Put) -> dict[str, Any]:
    """Pickles a value with large buffers out of band, so that equal buffers are stored once."""
    buffers: list[memoryview] = []

    def take_buffer(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous: pickle copies it
            return True
        if len(raw) <= INLINE_BYTES:
            return True
        buffers.append(raw)
        return False

    try:
        data = pickle.dumps(value, protocol=5, buffer_callback=take_buffer)
    except Exception as error:  # pickling runs code of the user's types
        raise Unstorable(f"{type(error).__name__}: {error}") from error
    return {"body": _split_pieces(memoryview(data), put), "buffers": [_split_pieces(raw, put) for raw in buffers]}


# --- reading ---------------------------------------------------------------------------------------------------------


def _decode_form(form: Any, get: Get) -> Any:
    if isinstance(form, list):
        return [_decode_form(item, get) for item in form]
    if not isinstance(form, dict):
        return form
    tag = next(iter(form), "")
    reader = _DECODERS.get(tag) if len(form) == 1 else None
    if reader is not None:
        return reader(form[tag], get)
    if len(form) == 1 and tag.startswith("$"):
        return decode_value(form, get)
    return {key: _decode_form(item, get) for key, item in form.items()}


def _decode_array(form: dict[str, Any], get: Get) -> Any:
    import numpy as np

    array = np.frombuffer(_join_pieces(form, get), dtype=np.dtype(_tuple_descr(form["dtype"]))).reshape(form["shape"])
    return array.transpose(np.argsort(form["order"])) if form["order"] else array


def _decode_tensor(form: dict[str, Any], get: Get) -> Any:
    import torch

    dtype, raw = getattr(torch, form["dtype"]), _join_pieces(form, get)
    tensor = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    tensor = tensor.reshape(form["shape"])
    if form["order"]:
        tensor = tensor.permute(*(form["order"].index(axis) for axis in range(len(form["order"]))))
    return tensor.requires_grad_() if form["grad"] else tensor


def _decode_pickle(form: dict[str, Any], get: Get) -> Any:
    return pickle.loads(_join_pieces(form["body"], get), buffers=[_join_pieces(one, get) for one in form["buffers"]])


_DECODERS: dict[str, Callable[[Any, Get], Any]] = {
    "$tuple": lambda form, get: tuple(_decode_form(item, get) for item in form),
    "$map": lambda form, get: {_decode_form(key, get): _decode_form(item, get) for key, item in form},
    "$dense": _decode_array,
    "$tensor": _decode_tensor,
    "$pickle": _decode_pickle,
}
