"""A stored value as JSON that anyone can read: no tags, no chunks, nothing that JSON can't say."""

from __future__ import annotations

import math
from typing import Any

from relive.store.journal.value_codec import from_text

_AS_TEXT = ("$path", "$datetime", "$timestamp", "$complex")
_AS_LIST = ("$tuple", "$set", "$frozenset")
_INT64 = range(-(1 << 63), 1 << 64)


def plain_value(form: Any) -> Any:
    """The form of a value, as the journal keeps it, without its tags; what is big is told by its beginning or shape."""
    if isinstance(form, list):
        return [plain_value(item) for item in form]
    if not isinstance(form, dict):
        return form
    tag = next(iter(form), "")
    if len(form) == 1 and tag.startswith("$"):
        return _untagged(tag, form[tag])
    return {key: plain_value(item) for key, item in form.items()}


def _untagged(tag: str, inner: Any) -> Any:
    if tag == "$int":
        number = int(inner, 16)
        return number if number in _INT64 else str(number)
    if tag == "$np":
        return plain_value(inner[1])
    if tag in _AS_LIST:
        return [plain_value(item) for item in inner]
    if tag == "$map":
        return {str(plain_value(key)): plain_value(item) for key, item in inner}
    if tag == "$secret":
        return "<redacted>"
    if tag == "$text":
        return f"{inner['head']}…"
    if tag == "$repr":
        return inner["text"]
    if tag in ("$array", "$image", "$scalar"):
        return f"{tag[1:]}{inner.get('shape', '')}"
    return str(inner) if tag in _AS_TEXT or tag == "$float" else f"<{tag[1:]}>"


def plain_text(text: str | None) -> Any:
    """The same for JSON text."""
    return None if text is None else plain_value(from_text(text))


def plain_number(value: float | None) -> float | None:
    """A number if JSON can say it."""
    return value if value is not None and math.isfinite(value) else None
