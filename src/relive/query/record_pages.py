"""The record of a run in pages: some items of each of its long lists, and how many each has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from relive.model import RunRecord
from relive.query.bounded_cells import cut_cell

MAX_ITEMS = 1_000  # of one list, at a time
MAX_VALUE_CHARS = 10_000
# The lists and mappings that are paged, by their place in the record.
_PAGED = {
    "tags": ("tags",), "args": ("config", "args"), "argv": ("config", "argv"), "declared": ("data", "declared"),
    "read": ("data", "read"), "packages": ("environment", "packages"), "variables": ("environment", "variables"),
    "command": ("environment", "command"), "artifacts": ("artifacts",), "warnings": ("warnings",),
    "incomplete": ("incomplete",), "ranks": ("ranks",),
}  # fmt: skip


def page_of_record(record: RunRecord, offset: int, limit: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Returns a record with some items of each list, and how many there are of those that have more than that."""
    form: dict[str, Any] = msgspec.to_builtins(record)
    form = {**form, **{part: dict(form[part]) for part in ("config", "data", "environment")}}
    totals: dict[str, int] = {}
    for name, holder, key in _places(form):
        items = holder.get(key)
        if items and (offset or len(items) > min(limit, MAX_ITEMS)):
            totals[name] = len(items)
            holder[key] = page_of(items, offset, min(limit, MAX_ITEMS))
    return _bounded(form), totals


def add_page(record: dict[str, Any], page: dict[str, Any]) -> None:
    """Adds the items of another page to the lists of a record."""
    more = {name: holder.get(key) for name, holder, key in _places(page)}
    for name, holder, key in _places(record):
        items = more[name]
        if items:
            holder[key] = {**holder[key], **items} if isinstance(items, Mapping) else [*holder[key], *items]


def page_of(items: Any, offset: int, limit: int) -> Any:
    """Returns some items of a list or a mapping."""
    if isinstance(items, Mapping):
        return dict(islice(items.items(), offset, offset + limit))
    return items[offset : offset + limit]


def _places(form: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields each list that is paged: its name, what holds it, and its key there."""
    for name, (*parents, key) in _PAGED.items():
        yield name, form[parents[0]] if parents else form, key


def _bounded(value: Any) -> Any:
    """Returns a value in which no text, and no list, is longer than others may be."""
    if isinstance(value, str):
        return cut_cell(value, MAX_VALUE_CHARS)[0]
    if isinstance(value, dict):
        return {name[:MAX_VALUE_CHARS]: _bounded(one) for name, one in islice(value.items(), MAX_ITEMS)}
    if isinstance(value, list | tuple):
        return [_bounded(one) for one in value[:MAX_ITEMS]]
    return value
