"""Route specifications, and the OpenAPI document generated from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "maxLength": 200}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999}
FLAG: Schema = {"type": "string", "enum": ["0", "1"]}
RUN: Schema = {"type": "string", "pattern": "^[0-9a-f]{12}$"}
JOURNAL: Schema = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,5})(-r?[1-9][0-9]{0,6})?$"}
CHUNK: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
MODEL: Schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}
PACK: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}-[0-9]{1,10}-[0-9]{1,10}\\.pack$"}
FILE: Schema = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,5})(-r?[1-9][0-9]{0,6})?\\.(slots|lines|dropped)$"}
ASKED: Schema = {"type": "string", "pattern": "^[0-9a-f]{12}$"}
BYTES: Schema = {"type": "string", "format": "binary"}
ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def bounded_int(most: int) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": most}


def object_schema(**properties: Any) -> Schema:
    """Returns the schema of an object with at least these properties."""
    known = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in properties.items()}
    return {"type": "object", "required": sorted(known), "properties": known}


@dataclass(frozen=True, eq=False)
class RouteSpec:
    """The specification of a route: method, path, scope, parameters, body and response."""

    method: str
    path: str
    scope: str | None
    summary: str
    query: dict[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: Schema | None = None
    answer: Schema | None = None
    status: int = 200
    media: str = "application/json"
    description: str = ""


def openapi_document(routes: Iterable[RouteSpec], version: str) -> dict[str, Any]:
    """Returns the OpenAPI document."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path.replace(":path}", "}"), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "relive", "version": version, "description": "The store of relive behind HTTP."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _operation_id(route: RouteSpec) -> str:
    """Returns the name that generated clients call a route by: `get_runs_by_run`."""
    words = [part.removeprefix("{").removesuffix("}").removesuffix(".json") for part in route.path.split("/") if part]
    marked = [f"by_{word}" if f"{{{word}}}" in route.path else word for word in words if word != "api"]
    return "_".join([route.method.lower(), *marked]).replace("-", "_")


def _operation(route: RouteSpec) -> dict[str, Any]:
    named = {
        "run": RUN,
        "journal": JOURNAL,
        "chunk": CHUNK,
        "pack": PACK,
        "file": FILE,
        "model": MODEL,
        "alias": MODEL,
        "version": MODEL,
        "plan": ASKED,
        "question": ASKED,
        "artifact": {"type": "string", "minLength": 1, "maxLength": 1_000},
    }
    path_names = [part[1:-1].removesuffix(":path") for part in route.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": named[name]} for name in path_names]
    parameters += [
        {"name": name, "in": "query", "required": name in route.required, "schema": schema}
        for name, schema in route.query.items()
    ]
    success: dict[str, Any] = {"description": "As asked."}
    if route.answer is not None:
        success["content"] = {route.media: {"schema": route.answer}}
    failure = {"description": "Not as asked; says why.", "content": {"application/json": {"schema": ERROR}}}
    operation: dict[str, Any] = {
        "operationId": _operation_id(route), "summary": route.summary,
        "description": route.description or route.summary, "parameters": parameters,
        "responses": {str(route.status): success, "4XX": failure, "503": failure},
    }  # fmt: skip
    if route.body is not None:
        media = "application/octet-stream" if route.body is BYTES else "application/json"
        operation["requestBody"] = {"required": True, "content": {media: {"schema": route.body}}}
    if route.scope is None:
        operation["security"] = []
    return operation
