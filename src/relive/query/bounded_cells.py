"""Values in lists of runs, cut to a length: one run with huge values must not make a list too long for everybody."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CUT = "…"  # the end of a text that was cut
MAX_CELL_CHARS = 1_000
PAGE_CHARS = 4 << 20  # of all cells of a page; in JSON, a character may take six bytes
ROW_BYTES = 24 << 10  # of a row in a list of up to a thousand
# How much a row is cut: characters of each value, and values of each kind; the first that fits is taken.
_MEASURES = ((1_000, 100), (200, 50), (50, 20), (10, 5))


def cell_chars(rows: int, columns: int) -> int:
    """Returns how long the cells of a page may be."""
    return max(20, min(MAX_CELL_CHARS, PAGE_CHARS // max(1, rows * columns)))


def cut_cell(value: Any, chars: int) -> tuple[Any, bool]:
    """Returns a value that has at most so many characters, and whether it was cut; lists and mappings become text."""
    if isinstance(value, str):
        return (value, False) if len(value) <= chars else (value[:chars] + CUT, True)
    if isinstance(value, list | tuple | dict):
        text = json.dumps(value, default=str, ensure_ascii=False)
        return (value, False) if len(text) <= chars else (text[:chars] + CUT, True)
    return value, False


def cut_run_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of a list of runs that is not longer than others may be; `cut` names the fields that were cut."""
    if _size(row) <= ROW_BYTES:
        return {**row, "cut": []}
    for chars, most in _MEASURES:
        shown = {name: _cut_field(value, chars, most) for name, value in row.items()}
        if _size(shown) <= ROW_BYTES:
            break
    return {**shown, "cut": [name for name, value in row.items() if shown[name] != value]}


def _cut_field(value: Any, chars: int, most: int) -> Any:
    if isinstance(value, dict):
        return {name[:chars]: cut_cell(one, chars)[0] for name, one in list(value.items())[:most]}
    if isinstance(value, list | tuple):
        return [cut_cell(one, chars)[0] for one in value[:most]]
    return cut_cell(value, chars)[0]


def _size(row: Mapping[str, Any]) -> int:
    return len(json.dumps(row, default=str))
