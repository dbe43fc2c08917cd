"""How errors become HTTP responses: status, a message with the remedy, and Retry-After."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from relive.errors import NotFound, QueryError, ReliveError, StorageUnavailable
from relive.store.sync import IntakeBusy, NotOwner, RangeConflict, RangeGap, StoreFull


class HttpError(ReliveError):
    """A request that fails with an HTTP status."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Returns a JSON response that caches must not store."""
    return Response(
        msgspec.json.encode(content), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json"
    )


def json_bytes_response(body: bytes, status: int = 200) -> Response:
    """Returns a response with JSON that is encoded already."""
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")


def error_response(error: ReliveError) -> Response:
    """Returns the response for an error."""
    if isinstance(error, RangeGap):
        return json_response({"error": str(error), "slots": error.held.slots, "lines": error.held.lines}, 409)
    if isinstance(error, RangeConflict):
        return json_response({"error": str(error), "differs": {"file": error.file, "at": error.at}}, 409)
    if isinstance(error, NotOwner):
        return json_response({"error": str(error)}, 403)
    if isinstance(error, HttpError):
        headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}
        if error.status in (408, 413):  # the rest of the body is not read
            headers["Connection"] = "close"
        return json_response({"error": str(error)}, error.status, headers)
    if isinstance(error, IntakeBusy):
        return json_response({"error": str(error)}, 503, {"Retry-After": "1"})
    if isinstance(error, StoreFull):
        return json_response({"error": str(error)}, 503, {"Retry-After": "10"})
    if isinstance(error, StorageUnavailable):  # its address is for the server's log, not for clients
        return json_response({"error": "the catalog can't be reached; retry later"}, 503, {"Retry-After": "10"})
    if isinstance(error, NotFound):
        return json_response({"error": str(error)}, 404)
    return json_response({"error": str(error)}, 400 if isinstance(error, QueryError) else 422)
