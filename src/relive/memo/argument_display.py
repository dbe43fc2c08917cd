"""How an argument is shown to people: short, quick to make, and never a secret."""

from __future__ import annotations

import functools
from typing import Any

from relive.record.provenance import is_secret

_LONGEST = 80
_SHOWN = 6
_is_secret = functools.lru_cache(maxsize=1024)(is_secret)
_PLAIN = (type(None), bool, int, float, complex)


def look(name: str, value: Any) -> str:
    """A few characters that tell one argument from another; the hash is what really does."""
    return "<redacted>" if _is_secret(name) else _cut(_look(value, 2))


def _look(value: Any, depth: int) -> str:
    kind = type(value)
    if kind in _PLAIN:
        return repr(value) if kind is not int or value.bit_length() < 256 else f"int of {value.bit_length()} bits"
    if kind in (str, bytes):
        return repr(value[:_LONGEST])
    if kind in (list, tuple, set, frozenset) and depth:
        inside = ", ".join(_look(item, depth - 1) for item in list(value)[:_SHOWN])
        more = ", …" if len(value) > _SHOWN else ""
        brackets = {"list": "[]", "tuple": "()"}.get(kind.__name__, "{}")
        return f"{brackets[0]}{inside}{more}{brackets[1]}"
    if kind is dict and depth:
        pairs = list(value.items())[:_SHOWN]
        inside = ", ".join(f"{_look(key, 1)}: {_hidden(key, item, depth)}" for key, item in pairs)
        return f"{{{inside}{', …' if len(value) > _SHOWN else ''}}}"
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if hasattr(value, "__fspath__"):
        return f"{kind.__name__}({str(value)!r})"
    return _shaped(value)


def _hidden(key: Any, value: Any, depth: int) -> str:
    return "<redacted>" if type(key) is str and _is_secret(key) else _look(value, depth - 1)


def _shaped(value: Any) -> str:
    """The type, with shape and dtype where it has them; the `repr` of an array or a frame takes too long."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    told = f" {dtype}" if dtype is not None and not callable(dtype) else ""
    if isinstance(shape, tuple):
        told += f"{list(map(str, shape))}".replace("'", "")
    return type(value).__name__ + told


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
