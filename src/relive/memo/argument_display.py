"""Short text for an argument: cheap to compute, bounded in length, with secrets redacted."""

from __future__ import annotations

import functools
from typing import Any

from relive.record.provenance import SecretFilter, is_secret

_MAX_CHARS = 80
_MAX_ITEMS = 6
_is_secret = functools.lru_cache(maxsize=1024)(is_secret)
_without_secrets = SecretFilter().message
_SCALAR_TYPES = (type(None), bool, int, float, complex)


def describe_argument(name: str, value: Any) -> str:
    """Returns a short description of an argument for people; the hash is what identifies it."""
    return "<redacted>" if _is_secret(name) else _truncate(_describe(value, 2))


def _describe(value: Any, depth: int) -> str:
    kind = type(value)
    if kind in _SCALAR_TYPES:
        return repr(value) if kind is not int or value.bit_length() < 256 else f"int of {value.bit_length()} bits"
    if kind in (str, bytes):
        return repr(_without_secrets(value[: 4 * _MAX_CHARS])[:_MAX_CHARS] if kind is str else value[:_MAX_CHARS])
    if kind in (list, tuple, set, frozenset) and depth:
        content = ", ".join(_describe(item, depth - 1) for item in list(value)[:_MAX_ITEMS])
        more = ", …" if len(value) > _MAX_ITEMS else ""
        brackets = {"list": "[]", "tuple": "()"}.get(kind.__name__, "{}")
        return f"{brackets[0]}{content}{more}{brackets[1]}"
    if kind is dict and depth:
        pairs = list(value.items())[:_MAX_ITEMS]
        content = ", ".join(f"{_describe(key, 1)}: {_describe_dict_item(key, item, depth)}" for key, item in pairs)
        return f"{{{content}{', …' if len(value) > _MAX_ITEMS else ''}}}"
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if hasattr(value, "__fspath__"):
        return f"{kind.__name__}({str(value)!r})"
    return _describe_type(value)


def _describe_dict_item(key: Any, value: Any, depth: int) -> str:
    return "<redacted>" if type(key) is str and _is_secret(key) else _describe(value, depth - 1)


def _describe_type(value: Any) -> str:
    """Returns the type, with shape and dtype if it has them; the `repr` of an array or a frame is too slow."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    suffix = f" {dtype}" if dtype is not None and not callable(dtype) else ""
    if isinstance(shape, tuple):
        suffix += f"{list(map(str, shape))}".replace("'", "")
    return type(value).__name__ + suffix


def _truncate(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"
