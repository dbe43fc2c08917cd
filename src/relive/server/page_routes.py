"""The specification of the routes that the web page reads: tables, columns, curves and events."""

from __future__ import annotations

from relive.server.openapi import RUN, TEXT, RouteSpec, bounded_int, object_schema

_LONG_TEXT = {"type": "string", "maxLength": 2_000}
_RUN_IDS = {"type": "array", "maxItems": 10_000, "items": RUN}
_NUMBER = {"type": ["number", "string", "null"]}  # NaN and infinities are words
_VERDICT = {"enum": ["recorded", "proven", "reproduced", "unverified", "contradicted"]}
_COLUMN = object_schema(name="string", kind={"enum": ["run", "arg", "metric", "tag", "env"]}, type="string")
_ROW = object_schema(
    run=RUN, cells="object", cut="array", live="boolean", outcome="string", incomplete="array",
    verdicts={"type": "object", "additionalProperties": _VERDICT},
)  # fmt: skip
_CURVE = object_schema(
    run=RUN, name="string", rank="integer", count="integer", x={"type": "array", "items": {"type": "number"}},
    last={"type": "array", "items": _NUMBER}, low={"type": "array", "items": _NUMBER},
    high={"type": "array", "items": _NUMBER},
    nonfinite={"type": "array", "items": object_schema(x="number", kind="string")},
    sources={"type": "array", "items": object_schema(**{"from": "number", "to": "number", "replay": "integer",
                                                        "verdict": _VERDICT})},
)  # fmt: skip
_SORT = {
    "type": "object", "required": ["column"], "additionalProperties": False,
    "properties": {"column": {"type": "string"}, "descending": {"type": "boolean"}},
}  # fmt: skip

TABLE = RouteSpec(
    "POST", "/api/table", "read", "A table of runs.",
    description="Any columns of the runs for which `where` holds, sorted, grouped and paged. A `where` that can't be "
    "read is answered with 422, its position and a suggestion.",
    body={"type": "object", "additionalProperties": False, "properties": {
        "where": {"type": ["string", "null"], "maxLength": 2_000},
        "columns": {"type": ["array", "null"], "maxItems": 200, "items": {"type": "string"}},
        "sort": {"type": "array", "maxItems": 5, "items": _SORT},
        "group": {"type": "array", "maxItems": 5, "items": {"type": "string"}},
        "offset": bounded_int(1_000_000_000), "limit": bounded_int(1_000),
        "runs": {**_RUN_IDS, "type": ["array", "null"]}, "first": {**_RUN_IDS, "maxItems": 1_000}}},
    answer=object_schema(
        total="integer", matching="integer", columns={"type": "array", "items": _COLUMN},
        rows={"type": "array", "items": _ROW},
        groups={"type": "array", "items": object_schema(values="array", count="integer", runs="array")},
    ),
)  # fmt: skip
COLUMNS = RouteSpec(
    "GET", "/api/columns", "read", "Names of columns.",
    description="The columns whose name contains a text, for completion; those that begin with it come first.",
    query={"prefix": TEXT, "limit": bounded_int(1_000)},
    answer=object_schema(total="integer", columns={"type": "array", "items": object_schema(
        name="string", kind={"enum": ["run", "arg", "metric", "tag", "env"]}, runs="integer",
        values={"type": ["integer", "null"]}, is_number={"type": ["boolean", "null"]})}),
)  # fmt: skip
CURVES = RouteSpec(
    "POST", "/api/series", "read", "Curves of many runs and names.",
    description="The values of some names of some runs over an x axis, in at most as many buckets as there are pixels, "
    "each with its lowest, highest and last value. `x` is `step`, `time`, `relative` or the name of a loop.",
    body={"type": "object", "additionalProperties": False, "required": ["runs", "names", "pixels"], "properties": {
        "runs": {**_RUN_IDS, "maxItems": 2_000},
        "names": {"type": "array", "maxItems": 500, "items": {"type": "string"}},
        "x": {"type": "string", "minLength": 1, "maxLength": 200}, "from": {"type": ["number", "null"]},
        "to": {"type": ["number", "null"]}, "pixels": {"type": "integer", "minimum": 1, "maximum": 20_000},
        "rank": bounded_int(1_000_000), "all_ranks": {"type": "boolean"}, "envelopes": {"type": "boolean"}}},
    answer=object_schema(x="string", series={"type": "array", "items": _CURVE}, missing="array"),
)  # fmt: skip
EVENTS = RouteSpec(
    "GET", "/api/events", "read", "What changes, as it changes.",
    description="Server-sent events: `runs` (new or changed runs), `points` (new values of live runs) and `ended`. "
    "With Last-Event-ID, the events since that one follow; `reset` says that they are no longer known.",
    query={"runs": _LONG_TEXT, "once": {"enum": ["1"]}}, answer={"type": "string"}, media="text/event-stream",
)  # fmt: skip
