"""The specification of the routes for the page of one run."""

from __future__ import annotations

from relive.server.openapi import BYTES, FLAG, TEXT, RouteSpec, bounded_int, object_schema

_RUN = "/api/runs/{run}"
_PAGE = {"limit": bounded_int(1_000), "offset": bounded_int(1_000_000_000)}
_AGAINST = {"against": TEXT}
_PATH = {"type": "string", "maxLength": 4_000}

CONFIG = RouteSpec(
    "GET", f"{_RUN}/config", "read", "Args and command line; with another run, the args that differ.",
    query={**_AGAINST, **_PAGE}, answer=object_schema(args="object", total="integer", argv="array", tags="object"),
)  # fmt: skip
CODE = RouteSpec(
    "GET", f"{_RUN}/code", "read", "The files of a run's code version, or the text of one.",
    query={"path": _PATH, **_PAGE}, answer={"type": "object"},
)  # fmt: skip
CODE_DIFF = RouteSpec(
    "GET", f"{_RUN}/code/diff", "read", "What differs from the version before, from HEAD, or from another run's.",
    query=_AGAINST, answer=object_schema(files="array", truncated="boolean"),
)  # fmt: skip
DATA = RouteSpec(
    "GET", f"{_RUN}/data", "read", "Declared data and files that were read; with another run, what differs.",
    query={**_AGAINST, **_PAGE}, answer=object_schema(declared="array", observed="array", total="integer"),
)  # fmt: skip
ENVIRONMENT = RouteSpec(
    "GET", f"{_RUN}/environment", "read", "Interpreter, packages, machine; with another run, what differs.",
    query={**_AGAINST, **_PAGE},
    answer=object_schema(
        packages="object", total="integer", hardware="object", command="array", variables="object"
    ),
)  # fmt: skip
CHECKPOINT_LIST = RouteSpec(
    "GET", f"{_RUN}/checkpoint-list", "read", "Checkpoints with their sizes and what they hold.",
    query=_PAGE, answer=object_schema(checkpoints="array", total="integer", restore="string"),
)  # fmt: skip
MEMO = RouteSpec(
    "GET", f"{_RUN}/memo", "read", "Memoized calls: reused or computed.", query=_PAGE,
    answer=object_schema(entries="array", total="integer"),
)  # fmt: skip
CONSOLE = RouteSpec(
    "GET", f"{_RUN}/console", "read", "What a run printed.", query={"rank": bounded_int(1_000_000), **_PAGE},
    answer=object_schema(lines="array", total="integer", truncated="boolean"),
)  # fmt: skip
COMMANDS = RouteSpec(
    "GET", f"{_RUN}/commands", "read", "The commands that repeat, replay and restore a run.",
    answer=object_schema(reproduce="array", replay="string", restore="string"),
)  # fmt: skip
ARTIFACTS = RouteSpec(
    "GET", f"{_RUN}/artifacts", "read", "What a run kept.", query=_PAGE,
    answer=object_schema(artifacts="array", total="integer"),
)  # fmt: skip
ARTIFACT = RouteSpec(
    "GET", f"{_RUN}/artifacts/{{artifact:path}}", "read", "The bytes of an artifact, or a preview.",
    query={"download": FLAG, "preview": FLAG, "file": _PATH}, answer=BYTES, media="application/octet-stream",
)  # fmt: skip
_NAME = {**TEXT, "minLength": 1}
_VALUES = {
    "name": _NAME, "x": {"type": "string", "minLength": 1, "maxLength": 200}, "rank": bounded_int(1_000_000),
    "from": {"type": "number"}, "to": {"type": "number"},
}  # fmt: skip
MEDIA = RouteSpec(
    "GET", f"{_RUN}/media", "read", "The values of a name that are no numbers: what each is, and texts and tables.",
    query={**_VALUES, "limit": bounded_int(1_000)}, required=("name",),
    answer=object_schema(total="integer", values={"type": "array", "items": object_schema(
        n="integer", x={"type": ["number", "null"]}, kind={"enum": ["text", "table", "histogram", "image", "json"]})}),
)  # fmt: skip
HISTOGRAMS = RouteSpec(
    "GET", f"{_RUN}/media/histogram", "read", "Histograms of the arrays of a name, with the same bins at every step.",
    query={**_VALUES, "limit": bounded_int(200), "bins": {"type": "integer", "minimum": 1, "maximum": 500}},
    required=("name",), answer=object_schema(edges="array", rows="array", total="integer"),
)  # fmt: skip
IMAGE = RouteSpec(
    "GET", f"{_RUN}/media/image", "read", "A logged image as PNG.", required=("name", "n"),
    query={"name": _NAME, "n": bounded_int(1_000_000_000), "item": bounded_int(1_000_000),
           "rank": bounded_int(1_000_000)},
    answer=BYTES, media="image/png",
)  # fmt: skip
