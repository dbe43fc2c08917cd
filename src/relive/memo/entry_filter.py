"""The conditions of `relive memo --where`, like "age > 30d and size > 10MB", as predicates on memo rows."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable
from typing import Any

from relive.errors import QueryError
from relive.store.chunks import MemoRow

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip
_FIELDS: dict[str, tuple[dict[str, float] | None, Callable[[MemoRow, float], Any]]] = {
    "age": (_SECONDS, lambda row, now: now - row.created_us / 1e6),
    "unused": (_SECONDS, lambda row, now: now - row.used_us / 1e6),
    "took": (_SECONDS, lambda row, now: row.took_s),
    "size": (_BYTES, lambda row, now: row.size_bytes),
    "kind": (None, lambda row, now: row.kind),
    "run": (None, lambda row, now: row.run),
    "function": (None, lambda row, now: row.function),
}
_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|!=|<|>|==|=)\s*('[^']*'|\"[^\"]*\"|[^\s'\"]+)\s*")

Condition = Callable[[MemoRow], bool]


def parse_condition(text: str, now_s: float | None = None) -> Condition:
    """Returns a condition as a predicate on rows; raises `QueryError` that lists the fields and the syntax."""
    now = time.time() if now_s is None else now_s
    tests = [_parse_comparison(part, text, now) for part in re.split(r"\s+and\s+", text.strip())]
    return lambda row: all(test(row) for test in tests)


def _parse_comparison(part: str, text: str, now: float) -> Condition:
    found = _CONDITION.fullmatch(part)
    if found is None or found[1] not in _FIELDS:
        raise QueryError(
            f"{part!r} in --where {text!r} is not a valid condition; write conditions on {', '.join(_FIELDS)} "
            f'joined by "and", like "age > 30d and size > 10MB"'
        )
    units, read_field = _FIELDS[found[1]]
    compare = _OPERATORS[found[2].replace("==", "=")]
    value = found[3].strip("'\"")
    if units is None:
        return lambda row: compare(read_field(row, now), value)
    amount = _parse_amount(value, units, part)
    return lambda row: compare(read_field(row, now), amount)


def _parse_amount(value: str, units: dict[str, float], part: str) -> float:
    found = re.fullmatch(r"([\d.]+)\s*([a-zA-Z]*)", value)
    if found is None or found[2].lower() not in units or found[1].count(".") > 1:
        raise QueryError(
            f"{part!r}: {value!r} is not a valid amount; "
            f"write a number with one of the units {', '.join(filter(None, units))}"
        )
    return float(found[1]) * units[found[2].lower()]
