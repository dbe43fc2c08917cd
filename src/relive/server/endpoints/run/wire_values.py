"""Values as the pages of runs get them: plain JSON, in which NaN, infinities and large integers are texts."""

from __future__ import annotations

import math
from typing import Any

from relive.store.journal import plain_value

_SAFE = 1 << 53  # larger integers lose digits in JavaScript
_FLOATS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def wire_value(form: Any) -> Any:
    """Returns a value in its stored form as JSON for a page."""
    if isinstance(form, bool) or form is None:
        return form
    if isinstance(form, str):
        return clean_text(form)
    if isinstance(form, int):
        return form if abs(form) < _SAFE else f"$int:{form}"
    if isinstance(form, float):
        return form if math.isfinite(form) else _FLOATS[str(form)]
    if isinstance(form, list | tuple):
        return [wire_value(item) for item in form]
    if not isinstance(form, dict):
        return clean_text(str(form))
    if len(form) == 1 and "$float" in form:
        return _FLOATS.get(str(form["$float"]), str(form["$float"]))
    if len(form) == 1 and "$int" in form:
        return f"$int:{int(form['$int'], 16)}"
    if len(form) == 1 and next(iter(form)).startswith("$"):
        return wire_value(plain_value(form))
    return {clean_text(key): wire_value(item) for key, item in form.items()}


def clean_text(text: str) -> str:
    """Returns a text that can be encoded: lone surrogates, from paths that are not valid UTF-8, become `?`."""
    return text.encode("utf-8", "replace").decode()


def differing(here: dict[str, Any], there: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each name whose values differ; None where a side has no value."""
    names = sorted(here.keys() | there.keys())
    pairs = [(name, here.get(name), there.get(name)) for name in names]
    return [{"name": name, "here": mine, "there": other} for name, mine, other in pairs if mine != other]
