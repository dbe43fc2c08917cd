"""Answers for the web page: compressed as the client accepts, with an ETag, and 304 where it has the same already."""

from __future__ import annotations

import gzip

import xxhash
import zstandard
from starlette.requests import Request
from starlette.responses import Response

MIN_BYTES = 1_000  # shorter answers are sent as they are


def compact_response(request: Request, body: bytes, status: int = 200, media: str = "application/json") -> Response:
    """Returns a response with these bytes; one to a GET has an ETag."""
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if request.method == "GET" and status == 200:
        tag = headers["ETag"] = f'W/"{xxhash.xxh3_64_hexdigest(body)}"'
        held = request.headers.get("if-none-match", "")
        if tag in held or held.strip() == "*":
            return Response(None, 304, headers)
    else:
        headers["Cache-Control"] = "no-store"
    encoding, body = _compress(request.headers.get("accept-encoding", ""), body)
    if encoding:
        headers["Content-Encoding"] = encoding
    return Response(body, status, headers, media)


def _compress(accepted: str, body: bytes) -> tuple[str, bytes]:
    if len(body) < MIN_BYTES:
        return "", body
    if "zstd" in accepted:
        return "zstd", zstandard.ZstdCompressor(level=3).compress(body)
    return ("gzip", gzip.compress(body, 3, mtime=0)) if "gzip" in accepted else ("", body)
