"""Stored values as plain JSON for display: without tags, chunk references or non-finite numbers."""

from __future__ import annotations

import math
from typing import Any

from relive.errors import MalformedValue
from relive.store.journal.value_codec import GetChunk, decode_value, from_json

_SHOWN_AS_TEXT = ("$path", "$datetime", "$timestamp", "$complex")
_SHOWN_AS_LIST = ("$tuple", "$set", "$frozenset")
_INT64 = range(-(1 << 63), 1 << 64)


def plain_value(form: Any) -> Any:
    """Removes the tags from a value in its stored form; a large value is shown as its beginning or its shape."""
    if isinstance(form, list):
        return [plain_value(item) for item in form]
    if not isinstance(form, dict):
        return form
    tag = next(iter(form), "")
    if len(form) == 1 and tag.startswith("$"):
        try:
            return _remove_tag(tag, form[tag])
        except (TypeError, ValueError, KeyError, AttributeError, IndexError):
            return _malformed(tag)
    return {key: plain_value(item) for key, item in form.items()}


def _remove_tag(tag: str, inner: Any) -> Any:
    if tag == "$int":
        number = int(inner, 16)
        return number if number in _INT64 else str(number)
    if tag == "$np":
        return plain_value(inner[1])
    if tag in _SHOWN_AS_LIST:
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
    return str(inner) if tag in _SHOWN_AS_TEXT or tag == "$float" else f"<{tag[1:]}>"


def decode_or_describe(form: Any, get_chunk: GetChunk) -> Any:
    """Returns the value that was encoded; a text in place of one that is not in the form that its tag promises.

    For tables of many runs: one that was not written by relive must not hide the others.
    """
    try:
        return decode_value(form, get_chunk)
    except MalformedValue:
        return _malformed(next(iter(form), "") if isinstance(form, dict) else "")


def _malformed(tag: str) -> str:
    return f"<malformed {tag[1:]}>" if tag[:1] == "$" else "<malformed>"


def plain_value_from_json(text: str | None) -> Any:
    """Like `plain_value`, for a stored form that is given as JSON text."""
    return None if text is None else plain_value(from_json(text))


def finite_or_none(value: float | None) -> float | None:
    """Returns the number, or None if it isn't finite, which JSON can't express."""
    return value if value is not None and math.isfinite(value) else None
