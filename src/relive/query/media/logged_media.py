"""The values of one name that are no numbers, over the steps: what each is, and the texts and tables themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relive.errors import NotFound, ReliveError
from relive.model import Verdict
from relive.query.media import media_kinds
from relive.query.media.media_kinds import GetChunk
from relive.query.series import RELATIVE, STEP, TIME, loop_lengths, value_axes, wire_value
from relive.store.catalog import Index, RunEntry, find_run
from relive.store.chunks import Chunks
from relive.store.journal import decode_value, from_json, plain_value, slot_kinds

MAX_TEXT_CHARS = 10_000
MAX_WHOLE_CHARS = 1_000_000  # a longer text is shown as its beginning, without being read
TABLE_ROWS, TABLE_COLUMNS = 50, 30
HOSTILE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    RecursionError,
)  # forms come from other machines


@dataclass(frozen=True, slots=True)
class MediaTerms:
    """Which values are asked for. Of more than `limit`, so many at equal distances are taken, the last one included."""

    run: str
    name: str
    x: str = STEP
    rank: int = 0
    start: float | None = None
    end: float | None = None
    limit: int = 200


@dataclass(frozen=True, slots=True)
class MediaValue:
    """One value in its stored form. `n` counts the values of the name on its rank from 0."""

    n: int
    x: float | None
    form: Any
    replay: int
    verdict: str


def list_media(index: Index, terms: MediaTerms) -> dict[str, Any]:
    """Returns what the values are, in order, with texts and tables; `total` counts also those that are left out."""
    values, total = chosen_values(index, terms)
    get_chunk = Chunks(index.home.chunks).get
    rows = [{**place_json(value), **_describe(value.form, get_chunk)} for value in values]
    return {"run": terms.run, "name": terms.name, "rank": terms.rank, "x": terms.x, "total": total, "values": rows}


def chosen_values(index: Index, terms: MediaTerms) -> tuple[list[MediaValue], int]:
    """Returns the values in the window, thinned out, and how many there are in it."""
    found = [value for value in read_media(index, terms) if _is_inside(value.x, terms)]
    if len(found) <= terms.limit:
        return found, len(found)
    at = np.unique(np.linspace(0, len(found) - 1, terms.limit).round().astype(int))
    return [found[position] for position in at.tolist()], len(found)


def read_media(index: Index, terms: MediaTerms) -> Iterator[MediaValue]:
    """Yields all values of a name that are no numbers, in the order of their steps."""
    entry = find_run(index.runs(), terms.run)
    points = index.points([entry], [terms.name], all_ranks=terms.rank > 0)
    is_wanted = (points.process == 0) & (points.rank == terms.rank) & (points.kind == slot_kinds.LINE)
    rows = np.flatnonzero(is_wanted)
    if not len(rows) or points.text is None:
        return
    axes = _axes_of(index, entry, points, rows)
    axis = axes.get(terms.x)
    order = np.argsort(axes[STEP], kind="stable").tolist()
    for n, position in enumerate(order):
        row = int(rows[position])
        at = None if axis is None or not np.isfinite(axis[position]) else float(axis[position])
        replay = 0 if points.replay is None else int(points.replay[row])
        verdict = Verdict(0 if points.verdict is None else int(points.verdict[row])).word
        yield MediaValue(n, at, from_json(points.text[row]), replay, verdict)


def one_value(index: Index, terms: MediaTerms, n: int) -> MediaValue:
    """Returns the value with a number."""
    for value in read_media(index, terms):
        if value.n == n:
            return value
    raise NotFound(f"{terms.name!r} has no value {n} in run {terms.run}; GET /api/runs/{terms.run}/media lists them")


def place_json(value: MediaValue) -> dict[str, Any]:
    """Returns where a value belongs and where it comes from."""
    source = {"replay": value.replay, "verdict": value.verdict} if value.replay else {}
    return {"n": value.n, "x": value.x, **source}


def safe_kind(form: Any) -> str:
    """Like `kind_of`, for forms that may be anything."""
    try:
        return media_kinds.kind_of(form)
    except (*HOSTILE, ReliveError):
        return media_kinds.JSON


def _axes_of(index: Index, entry: RunEntry, points: Any, rows: Any) -> Mapping[str, Any]:
    lengths = loop_lengths(index, [entry]) if any(len(path) > 1 for path in points.paths) else {}
    axes = dict(value_axes(points, rows, lengths.get(entry.record.run, {})))
    replayed = points.replay[rows] > 0 if points.replay is not None else np.zeros(len(rows), bool)
    axes[TIME] = np.where(replayed, np.nan, points.time_us[rows] / 1e6)
    axes[RELATIVE] = axes[TIME] - entry.record.started_us / 1e6
    return axes


def _is_inside(x: float | None, terms: MediaTerms) -> bool:
    if terms.start is None and terms.end is None:
        return True
    return x is not None and (terms.start is None or x >= terms.start) and (terms.end is None or x <= terms.end)


def _describe(form: Any, get_chunk: GetChunk) -> dict[str, Any]:
    """Returns the kind of a value, and what a page shows of it."""
    kind = safe_kind(form)
    try:
        if kind == media_kinds.TEXT:
            return {"kind": kind, **_text(form, get_chunk)}
        if kind == media_kinds.TABLE:
            return {"kind": kind, **_table(form["$frame"], get_chunk)}
        if kind == media_kinds.IMAGE:
            return {"kind": kind, "images": media_kinds.count_images(form)}
        if kind == media_kinds.HISTOGRAM:
            return {"kind": kind, "text": str(plain_value(form)) if media_kinds.tag_of(form) == "$array" else ""}
        return {"kind": kind, "text": _cut(_json_text(form))}
    except ReliveError as error:
        return {"kind": media_kinds.JSON, "error": str(error)}
    except HOSTILE:
        return {"kind": media_kinds.JSON, "error": "the value is not what was stored; see `relive doctor --deep`"}


def _text(form: Any, get_chunk: GetChunk) -> dict[str, Any]:
    if media_kinds.tag_of(form) == "$text" and form["$text"]["chars"] > MAX_WHOLE_CHARS:
        text, is_cut = str(form["$text"]["head"]), True
    else:
        text = str(decode_value(form, get_chunk))
        is_cut = len(text) > MAX_TEXT_CHARS
    return {"text": _cut(text), **({"truncated": True} if is_cut else {})}


def _cut(text: str) -> str:
    return text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()


def _json_text(form: Any) -> str:
    import msgspec

    return msgspec.json.encode(wire_value(plain_value(form))).decode()


def _table(frame: dict[str, Any], get_chunk: GetChunk) -> dict[str, Any]:
    """Returns the first rows and columns of a frame, with its index at the left."""
    columns = frame["columns"]
    shown = [["", frame["index"]], *columns[:TABLE_COLUMNS]]
    cells = [_column(column, get_chunk) for _, column in shown]
    count = max((len(column) for column in cells), default=0)
    rows = [[column[at] if at < len(column) else None for column in cells] for at in range(min(count, TABLE_ROWS))]
    return {
        "columns": [str(name) for name, _ in shown], "rows": wire_value(rows),
        "truncated": count > TABLE_ROWS or len(columns) > TABLE_COLUMNS,
    }  # fmt: skip


def _column(form: Any, get_chunk: GetChunk) -> list[Any]:
    found = decode_value(form, get_chunk)
    return found.tolist() if isinstance(found, np.ndarray) else list(found)
