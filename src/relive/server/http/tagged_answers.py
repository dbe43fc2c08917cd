"""Answers of the routes for pages: unknown parameters are refused, and what did not change is not sent again."""

from __future__ import annotations

from collections.abc import Collection

import xxhash
from starlette.requests import Request
from starlette.responses import Response

from relive.server.http.error_responses import HttpError

_MAX_SHOWN = 5


def refuse_unknown(request: Request, known: Collection[str]) -> None:
    """Raises 422 if the query has parameters that the route does not know."""
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        shown = ", ".join(repr(name[:40]) for name in unknown[:_MAX_SHOWN])
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise HttpError(422, f"unknown parameter {shown}; {takes}")


def tagged_response(request: Request, body: bytes) -> Response:
    """Returns JSON with an ETag of its content, or 304 if the client has it already."""
    tag = f'"{xxhash.xxh3_64_hexdigest(body)}"'
    headers = {"Cache-Control": "private, no-cache", "ETag": tag}
    held = [word.strip().removeprefix("W/") for word in request.headers.get("if-none-match", "").split(",")]
    if tag in held or "*" in held:
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")
