"""Histograms of logged arrays over the steps, with the same bins at every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from relive.errors import ReliveError
from relive.query.media import media_kinds
from relive.query.media.logged_media import HOSTILE, MediaTerms, MediaValue, chosen_values, place_json, safe_kind
from relive.query.media.media_kinds import Array, GetChunk
from relive.store.catalog import Index
from relive.store.chunks import Chunks

BUDGET_BYTES = 256 << 20  # of arrays that are read for one answer


def read_histograms(index: Index, terms: MediaTerms, bins: int) -> dict[str, Any]:
    """Returns the edges of the bins, and the counts for each step; where arrays are large, for fewer steps."""
    values, total = chosen_values(index, terms)
    values = [value for value in values if safe_kind(value.form) == media_kinds.HISTOGRAM]
    size = sum(_size_bytes(value.form) for value in values)
    if size > BUDGET_BYTES and len(values) > 1:
        fewer = max(1, int(len(values) * BUDGET_BYTES / size))
        values, total = chosen_values(index, replace(terms, limit=fewer))
        values = [value for value in values if safe_kind(value.form) == media_kinds.HISTOGRAM]
    get_chunk = Chunks(index.home.chunks).get
    edges = _common_edges(values, bins, get_chunk)
    rows = [{**place_json(value), **_row(value.form, edges, get_chunk)} for value in values]
    found = {"run": terms.run, "name": terms.name, "rank": terms.rank, "x": terms.x, "total": total}
    return {**found, "edges": edges.tolist(), "rows": rows}


def _size_bytes(form: Any) -> int:
    return 0 if media_kinds.counts_and_edges(form) else media_kinds.array_facts(form).size_bytes


def _common_edges(values: list[MediaValue], bins: int, get_chunk: GetChunk) -> Array:
    """Returns edges from the lowest to the highest number of all values."""
    ranges = [found for value in values if (found := _range(value.form, get_chunk)) is not None]
    low = min((low for low, _ in ranges), default=0.0)
    high = max((high for _, high in ranges), default=1.0)
    if low == high:
        low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
    return np.linspace(low, high, bins + 1)


def _range(form: Any, get_chunk: GetChunk) -> tuple[float, float] | None:
    try:
        if parts := media_kinds.counts_and_edges(form):
            edges = media_kinds.read_array(parts[1], get_chunk)
            return (float(edges[0]), float(edges[-1])) if np.isfinite(edges).all() and len(edges) > 1 else None
        facts = media_kinds.array_facts(form)
        if form["$array"].get("torch") == "bfloat16":  # early stores have a summary of its bits
            numbers = media_kinds.read_array(form, get_chunk)
            finite = numbers[np.isfinite(numbers)]
            return (float(finite.min()), float(finite.max())) if finite.size else None
        return None if facts.low is None or facts.high is None else (float(facts.low), float(facts.high))
    except (*HOSTILE, ReliveError):
        return None


def _row(form: Any, edges: Array, get_chunk: GetChunk) -> dict[str, Any]:
    """Returns counts by bin, and some figures; or why there are none."""
    try:
        if parts := media_kinds.counts_and_edges(form):
            counts, own = (media_kinds.read_array(part, get_chunk).astype(np.float64) for part in parts)
            return _rebinned(counts, own, edges)
        return _counted(media_kinds.read_array(form, get_chunk), edges)
    except ReliveError as error:
        return {"counts": [], "size": 0, "error": str(error)}
    except HOSTILE:
        return {"counts": [], "size": 0, "error": "the array is not what was stored; see `relive doctor --deep`"}


def _counted(array: Array, edges: Array) -> dict[str, Any]:
    numbers = array.reshape(-1).astype(np.float64, copy=False)
    finite = numbers[np.isfinite(numbers)]
    figures = (
        {"low": float(finite.min()), "high": float(finite.max()), "mean": float(finite.mean()),
         "std": float(finite.std())} if finite.size else {}
    )  # fmt: skip
    counts, _ = np.histogram(finite, edges)
    return {"counts": counts.tolist(), "size": int(numbers.size), "odd": int(numbers.size - finite.size), **figures}


def _rebinned(counts: Array, own: Array, edges: Array) -> dict[str, Any]:
    """Spreads the counts of other bins evenly over these."""
    if not (np.isfinite(own).all() and np.isfinite(counts).all() and (np.diff(own) >= 0).all()):
        return {"counts": [], "size": 0, "error": "the edges of the histogram do not ascend"}
    below = np.interp(edges, own, np.r_[0.0, np.cumsum(counts)])
    size = float(counts.sum())
    middles = (own[1:] + own[:-1]) / 2
    mean = {"mean": float((middles * counts).sum() / size)} if size else {}
    return {"counts": np.diff(below).tolist(), "size": size, "odd": 0, "low": float(own[0]), "high": float(own[-1]),
            **mean}  # fmt: skip
