"""The specification of every route of the server's API."""

from __future__ import annotations

from relive.server.openapi import BYTES, CHUNK, COUNT, FLAG, PACK, TEXT, RouteSpec, bounded_int, object_schema

_PAGE = {"limit": bounded_int(1_000), "offset": bounded_int(1_000_000_000)}
_LONG_TEXT = {"type": "string", "maxLength": 2_000}
_HELD = object_schema(slots="integer", lines="integer")
_UPLOAD = object_schema(complete="boolean", at="integer")
_RUN = "/api/runs/{run}"
_JOURNAL = "/api/runs/{run}/journals/{journal}"
_MODEL = "/api/registry/{model}"
_VERSION = "/api/registry/{model}/versions/{version}"
_PACK = "/api/packs/{pack}/upload"
_ALIAS = "/api/registry/{model}/aliases/{alias}"
_BOARD = {
    "metric": TEXT, "by": {"enum": ["last", "best", "min", "max", "mean"]}, "order": {"enum": ["min", "max"]},
    "k": {"type": "integer", "minimum": 1, "maximum": 10_000}, "where": _LONG_TEXT, "group": TEXT, "columns": TEXT,
    "guard": TEXT, "across_data": FLAG, "ranks": {"enum": ["canonical", "mean", "min", "max"]},
    "limit": bounded_int(10_000),
}  # fmt: skip

HEALTH = RouteSpec("GET", "/health", None, "Is the server there?", answer=object_schema(status="string"))
METRICS = RouteSpec(
    "GET", "/metrics", "read", "Counters for Prometheus.", answer={"type": "string"}, media="text/plain"
)
OPENAPI = RouteSpec("GET", "/api/openapi.json", "read", "This document.", answer={"type": "object"})
SESSION = RouteSpec(
    "GET", "/api/session", "read", "Who is logged in, and what they may do.",
    answer=object_schema(name="string", scopes="array", can_ask="boolean", home="string", version="string"),
)  # fmt: skip
RUNS = RouteSpec(
    "GET", "/api/runs", "read", "Runs, newest first.",
    query={"search": TEXT, "outcome": TEXT, "run": TEXT, "limit": bounded_int(1_000),
           "offset": bounded_int(1_000_000_000)},
    answer=object_schema(total="integer", runs="array"),
)  # fmt: skip
ONE_RUN = RouteSpec(
    "GET", _RUN, "read", "The record of a run, and the names that it logged: a page of each list.",
    query={"limit": bounded_int(10_000), "offset": bounded_int(1_000_000_000)},
    answer=object_schema(record="object", metrics="array", total="integer", totals="object"),
)  # fmt: skip
SERIES = RouteSpec(
    "GET", f"{_RUN}/series", "read", "The values of a name as a line.", required=("name",),
    query={"name": {**TEXT, "minLength": 1}, "points": {"type": "integer", "minimum": 1, "maximum": 5_000},
           "rank": bounded_int(1_000_000)},
    answer=object_schema(count="integer", at="array", last="array", lowest="array", highest="array", time_us="array"),
)  # fmt: skip
SCRUB = RouteSpec(
    "POST", f"{_RUN}/scrub", "write", "Remove a text from the journals of a run, for its owner or an admin.",
    body={**object_schema(pattern="string"), "additionalProperties": False, "properties": {
        "pattern": {"type": "string", "minLength": 1, "maxLength": 1_000}, "dry_run": {"type": "boolean"}}},
    answer=object_schema(places="integer", files="array", chunks="array", unreadable_lines="integer"),
)  # fmt: skip
SKEW = RouteSpec(
    "GET", f"{_RUN}/skew", "read", "Rank 0 beside the mean over ranks.", required=("name",),
    query={"name": {**TEXT, "minLength": 1}, "limit": bounded_int(100_000), "offset": bounded_int(1_000_000_000)},
    answer=object_schema(ranks="array", steps="array", total="integer"),
)  # fmt: skip
ALERT = RouteSpec(
    "GET", f"{_RUN}/alert", "read", "Are the ranks too far apart?", required=("name", "above"),
    query={"name": {**TEXT, "minLength": 1}, "above": {"type": "number", "minimum": 0, "maximum": 1e300},
           "steps": {"type": "integer", "minimum": 1, "maximum": 1_000_000}},
    answer=object_schema(live="boolean", logged="boolean", alert={"type": ["object", "null"]}),
)  # fmt: skip
COMPARE = RouteSpec(
    "GET", "/api/compare", "read", "Runs side by side: a page of their args and of their values.",
    query={"runs": _LONG_TEXT, **_PAGE}, required=("runs",),
    answer=object_schema(runs="array", args="array", metrics="array", totals="object", same="object"),
)  # fmt: skip
LEADERBOARD = RouteSpec(
    "GET", "/api/leaderboard", "read", "Runs ranked by a metric.", query=_BOARD, required=("metric",),
    answer=object_schema(metric="string", groups="array"),
)  # fmt: skip
MODELS = RouteSpec(
    "GET", "/api/registry", "read", "Models, each with its newest versions.",
    query={**_PAGE, "versions": bounded_int(100)}, answer=object_schema(models="array", total="integer"),
)  # fmt: skip
ONE_MODEL = RouteSpec(
    "GET", _MODEL, "read", "One model: a page of its versions and of its history, from the newest on.", query=_PAGE,
    answer=object_schema(name="string", versions="array", total="integer", history="array", history_total="integer"),
)  # fmt: skip
PROMOTE = RouteSpec(
    "POST", _MODEL, "promote", "Make a run the next version of a model.", status=201,
    body={**object_schema(run="string"), "additionalProperties": False, "properties": {
        "run": {"type": "string"}, "artifact": {"type": ["string", "null"]}, "note": {"type": "string"},
        "aliases": {"type": "array", "items": {"type": "string"}}, "force": {"type": "boolean"}}},
    answer=object_schema(version="integer", run="string"),
)  # fmt: skip
ONE_VERSION = RouteSpec(
    "GET", _VERSION, "read", "One version of a model, with the pieces of its artifact.",
    answer=object_schema(version="integer", run="string"),
)  # fmt: skip
RETIRE = RouteSpec(
    "POST", f"{_VERSION}/retire", "promote", "Give a version up.", answer=object_schema(version="integer")
)
POINT = RouteSpec(
    "PUT", _ALIAS, "promote", "Let an alias point to a version.", body={**object_schema(version="integer")},
    answer=object_schema(version="integer"),
)  # fmt: skip
ROLL_BACK = RouteSpec(
    "POST", f"{_ALIAS}/rollback", "promote", "Let an alias point to where it pointed before.",
    answer=object_schema(version="integer"),
)  # fmt: skip
CHUNK_BYTES = RouteSpec(
    "GET", "/api/chunks/{chunk}", "read", "The bytes of a chunk.", answer=BYTES, media="application/octet-stream"
)
POSITION = RouteSpec("GET", _JOURNAL, "write", "How much of a journal is here.", answer=_HELD)
APPEND = RouteSpec(
    "POST", _JOURNAL, "write", "Append a range to a journal.", body=BYTES, answer=_HELD,
    query={"slots": COUNT, "slots_bytes": COUNT, "lines": COUNT, "lines_bytes": COUNT, "final": FLAG,
           "digest": {"type": "string", "pattern": "^[0-9a-f]{32}$"}},
    required=("slots", "slots_bytes", "lines", "lines_bytes", "digest"),
)  # fmt: skip
_CONSOLE_HELD = object_schema(bytes="integer", digest="string", final="boolean")
CONSOLE_HELD = RouteSpec(
    "GET", f"{_RUN}/console/{{file}}", "write", "How much of a console file is here.", answer=_CONSOLE_HELD
)
CONSOLE_PIECE = RouteSpec(
    "PUT", f"{_RUN}/console/{{file}}", "write", "Take a piece of a console file.", body=BYTES, answer=_CONSOLE_HELD,
    query={"at": COUNT, "bytes": COUNT}, required=("at", "bytes"),
)  # fmt: skip
MISSING = RouteSpec(
    "POST", "/api/chunks/missing", "write", "Which chunks are not here.", answer=object_schema(missing="array"),
    body=object_schema(names={"type": "array", "maxItems": 10_000, "items": CHUNK}),
)  # fmt: skip
FILES = RouteSpec(
    "GET", f"{_RUN}/files", "read", "The files of a run's journals, and those with what it printed.",
    answer=object_schema(files="array", console="array"),
)  # fmt: skip
FILE = RouteSpec(
    "GET", f"{_RUN}/files/{{file}}", "read", "Some bytes of one of them.", answer=BYTES, query={"at": COUNT},
    required=("at",), media="application/octet-stream",
)  # fmt: skip
CHECKPOINTS = RouteSpec(
    "GET", f"{_RUN}/checkpoints", "read", "What the checkpoints of a run consist of.",
    answer=object_schema(count="integer", manifests="array", packs="object"),
)  # fmt: skip
ONE_PACK = RouteSpec(
    "GET", "/api/packs/{pack}", "read", "Some bytes of a pack.", answer=BYTES, query={"at": COUNT}, required=("at",),
    media="application/octet-stream",
)  # fmt: skip
MISSING_PACKS = RouteSpec(
    "POST", "/api/packs/missing", "write", "Which packs of checkpoints are not here.",
    answer=object_schema(missing="array"),
    body=object_schema(packs={"type": "object", "maxProperties": 10_000, "additionalProperties": COUNT,
                              "propertyNames": PACK}),
)  # fmt: skip
PACK_UPLOADED = RouteSpec(
    "GET", _PACK, "write", "How much of a pack is here.", answer=_UPLOAD,
    query={"digest": CHUNK, "size": COUNT}, required=("digest", "size"),
)  # fmt: skip
PACK_UPLOAD = RouteSpec(
    "PUT", _PACK, "write", "Take a part of a pack.", body=BYTES, answer=_UPLOAD,
    query={"digest": CHUNK, "at": COUNT, "size": COUNT}, required=("digest", "at", "size"),
)  # fmt: skip
UPLOADED = RouteSpec("GET", "/api/chunks/{chunk}/upload", "write", "How much of a chunk is here.", answer=_UPLOAD)
UPLOAD = RouteSpec(
    "PUT", "/api/chunks/{chunk}/upload", "write", "Take a part of a chunk.", body=BYTES, answer=_UPLOAD,
    query={"at": COUNT, "size": COUNT}, required=("at", "size"),
)  # fmt: skip
