"""Typed forms of values that relive keeps: random states, arrays, dtypes, devices, dates, numbers, containers.

A form is a plain value itself, or a tuple whose first item is the name of a type. Unlike a pickle it names no code: a
reader makes values of the types listed here, and of no others.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import re
import sys
import uuid
from collections.abc import Callable
from typing import Any

Form = Any
_PLAIN = frozenset({type(None), bool, int, float, complex, bytes, str, type(...)})
_NAMES_OF_TORCH = {"dtype": "torch.dtype", "layout": "torch.layout", "memory_format": "torch.memory_format"}


class NotTyped(Exception):
    """A value of a type that has no form, or a form that no value has."""


def typed_form(value: Any) -> Form:
    """Returns the form of a value; raises `NotTyped` if it, or something in it, has none."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    encode = _ENCODERS.get(kind) or _library_encoder(kind)
    if encode is None:
        raise NotTyped(f"{kind.__module__}.{kind.__qualname__}")
    return encode(value)


def value_of_form(form: Form) -> Any:
    """Returns the value of a form."""
    if type(form) in _PLAIN:
        return form
    decode = _DECODERS.get(form[0]) if type(form) is tuple and form and type(form[0]) is str else None
    if decode is None:
        raise NotTyped(f"a value of an unknown type {form[:1] if type(form) is tuple else type(form).__name__}")
    try:
        return decode(*form[1:])
    except (TypeError, ValueError, OverflowError, ArithmeticError, KeyError, AttributeError, re.error) as error:
        raise NotTyped(f"a {form[0]} that is none ({error})") from error


def _forms(values: Any) -> tuple[Form, ...]:
    return tuple(map(typed_form, values))


def _values(forms: tuple[Form, ...]) -> list[Any]:
    return list(map(value_of_form, forms))


def _pairs(forms: tuple[Form, ...]) -> dict[Any, Any]:
    return dict(zip(_values(forms[::2]), _values(forms[1::2]), strict=True))


def _encode_zone(value: Any) -> Form:
    return ("zoneinfo", value.key) if value.key is not None else _refuse(value)


def _refuse(value: Any) -> Form:
    raise NotTyped(repr(value))


def _zone(key: str) -> Any:
    from zoneinfo import ZoneInfo

    return ZoneInfo(key)


def _clock(value: Any) -> tuple[Form, ...]:
    parts = (value.hour, value.minute, value.second, value.microsecond)
    return (*parts, typed_form(value.tzinfo), value.fold)


_ENCODERS: dict[type, Callable[[Any], Form]] = {
    tuple: lambda value: ("tuple", *_forms(value)),
    list: lambda value: ("list", *_forms(value)),
    dict: lambda value: ("dict", *_forms(part for pair in value.items() for part in pair)),
    range: lambda value: ("range", value.start, value.stop, value.step),
    slice: lambda value: ("slice", *_forms((value.start, value.stop, value.step))),
    type(NotImplemented): lambda _: ("NotImplemented",),
    datetime.date: lambda value: ("date", value.year, value.month, value.day),
    datetime.time: lambda value: ("time", *_clock(value)),
    datetime.datetime: lambda value: ("datetime", value.year, value.month, value.day, *_clock(value)),
    datetime.timedelta: lambda value: ("timedelta", value.days, value.seconds, value.microseconds),
    datetime.timezone: lambda value: ("timezone", *_forms(value.__getinitargs__())),
    decimal.Decimal: lambda value: ("Decimal", str(value)),
    fractions.Fraction: lambda value: ("Fraction", value.numerator, value.denominator),
    uuid.UUID: lambda value: ("UUID", value.bytes),
    re.Pattern: lambda value: ("pattern", value.pattern, value.flags),
}


def _make_clock(make: Any, *parts: Any) -> Any:
    *numbers, zone, fold = parts
    return make(*numbers, value_of_form(zone), fold=fold)


# --- numpy and torch --------------------------------------------------------------------------------------------------


def _library_encoder(kind: type) -> Callable[[Any], Form] | None:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and hasattr(numpy, "dtype"):
        if kind is numpy.ndarray:
            return _encode_array
        if issubclass(kind, numpy.dtype):
            return _encode_dtype
        if issubclass(kind, numpy.generic) and kind.__module__ == "numpy":
            return lambda value: ("scalar", _encode_dtype(value.dtype), value.tobytes())
    if torch is not None and hasattr(torch, "dtype"):
        if kind in (torch.dtype, torch.layout, torch.memory_format):
            return lambda value: (f"torch.{kind.__name__}", str(value).removeprefix("torch."))
        if kind is torch.device:
            return lambda value: ("torch.device", str(value))
        if kind is torch.Size:
            return lambda value: ("torch.Size", *value)
        if kind is torch.Tensor:
            return _encode_tensor
    zones = sys.modules.get("zoneinfo")
    return _encode_zone if zones is not None and kind is zones.ZoneInfo else None


def _encode_dtype(value: Any) -> Form:
    from numpy import dtype
    from numpy.lib.format import dtype_to_descr

    if value.hasobject or value.metadata:
        raise NotTyped(str(value))
    described = value.str if value.fields is None and value.subdtype is None else dtype_to_descr(value)
    form = ("dtype", typed_form(described))
    if dtype(described) != value:
        raise NotTyped(str(value))
    return form


def _dtype(described: Form) -> Any:
    from numpy import dtype

    found = dtype(value_of_form(described))
    if found.hasobject:
        raise NotTyped("memory can't hold objects")
    return found


def _encode_array(value: Any) -> Form:
    return ("array", _encode_dtype(value.dtype), ("tuple", *value.shape), value.tobytes())


def _array(dtype: Form, shape: Form, data: bytes) -> Any:
    from numpy import frombuffer

    return frombuffer(bytearray(data), value_of_form(dtype)).reshape(value_of_form(shape))


def _scalar(dtype: Form, data: bytes) -> Any:
    from numpy import frombuffer

    return frombuffer(data, value_of_form(dtype))[0]


def _encode_tensor(value: Any) -> Form:
    import torch

    is_plain = value.device.type == "cpu" and value.layout is torch.strided and not value.requires_grad
    if not is_plain or value.is_quantized or value.is_conj() or value.is_neg():
        raise NotTyped("a tensor on a device, or with gradients")
    flat = value.contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return ("torch.Tensor", typed_form(value.dtype), ("tuple", *value.shape), data)


def _tensor(dtype: Form, shape: Form, data: bytes) -> Any:
    import torch

    kind, sizes = value_of_form(dtype), value_of_form(shape)
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(sizes) if data else torch.empty(sizes, dtype=kind)


def _of_torch(kind: str) -> Callable[[str], Any]:
    def find(name: str) -> Any:
        import torch

        found = getattr(torch, name, None)
        if not isinstance(found, getattr(torch, kind)):
            raise NotTyped(f"this torch has no {kind} {name}")
        return found

    return find


def _device(name: str) -> Any:
    import torch

    return torch.device(name)


def _size(*sizes: int) -> Any:
    import torch

    return torch.Size(sizes)


_DECODERS: dict[str, Callable[..., Any]] = {
    "tuple": lambda *forms: tuple(_values(forms)),
    "list": lambda *forms: _values(forms),
    "dict": lambda *forms: _pairs(forms),
    "range": range,
    "slice": lambda *forms: slice(*_values(forms)),
    "NotImplemented": lambda: NotImplemented,
    "date": datetime.date,
    "time": lambda *parts: _make_clock(datetime.time, *parts),
    "datetime": lambda *parts: _make_clock(datetime.datetime, *parts),
    "timedelta": datetime.timedelta,
    "timezone": lambda *forms: datetime.timezone(*_values(forms)),
    "zoneinfo": _zone,
    "Decimal": lambda text: decimal.Decimal(str(text)),
    "Fraction": lambda one, other: fractions.Fraction(int(one), int(other)),
    "UUID": lambda data: uuid.UUID(bytes=data),
    "pattern": lambda pattern, flags: re.compile(pattern, flags),
    "dtype": _dtype,
    "array": _array,
    "scalar": _scalar,
    "torch.Tensor": _tensor,
    "torch.device": _device,
    "torch.Size": _size,
    **{name: _of_torch(kind) for kind, name in _NAMES_OF_TORCH.items()},
}
