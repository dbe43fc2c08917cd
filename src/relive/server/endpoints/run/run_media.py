"""Endpoints of logged values that are no numbers: texts, tables, histograms, and images as PNG that we encode."""

from __future__ import annotations

import base64
import math

import msgspec
import xxhash
from starlette.requests import Request
from starlette.responses import Response

from relive.query.media import MediaTerms, list_media, read_histograms, read_image
from relive.server.endpoints.ingest import run_of
from relive.server.endpoints.run.artifact_download import FOREIGN_HEADERS
from relive.server.endpoints.runs import query_int, query_text
from relive.server.http import HttpError, compact_response, refuse_unknown
from relive.server.questions import ReaderPool

MAX_VALUES, MAX_HISTOGRAMS, MAX_BINS, MAX_NUMBER = 1_000, 200, 500, 10**9
_VALUES = ("name", "x", "rank", "from", "to", "limit")


class MediaEndpoints:
    """Reads texts, tables, histograms and images that a run logged."""

    def __init__(self, readers: ReaderPool) -> None:
        self._readers = readers

    async def media(self, request: Request) -> Response:
        """Returns what the values of a name are, with texts and tables."""
        refuse_unknown(request, _VALUES)
        return compact_response(request, await self._readers.ask(request, list_media, _terms(request, 200, MAX_VALUES)))

    async def histograms(self, request: Request) -> Response:
        """Returns histograms of arrays, with the same bins at every step."""
        refuse_unknown(request, (*_VALUES, "bins"))
        bins = max(query_int(request, "bins", 64, MAX_BINS), 1)
        terms = _terms(request, 50, MAX_HISTOGRAMS)
        return compact_response(request, await self._readers.ask(request, read_histograms, terms, bins))

    async def image(self, request: Request) -> Response:
        """Returns an image as PNG, or 304 if the client has it."""
        refuse_unknown(request, ("name", "n", "item", "rank"))
        n, item = query_int(request, "n", 0, MAX_NUMBER), query_int(request, "item", 0, MAX_NUMBER)
        raw = await self._readers.ask(request, read_image, _terms(request, 1, 1), n, item)
        png = base64.b64decode(msgspec.json.decode(raw)["png"])
        headers = {**FOREIGN_HEADERS, "ETag": f'"{xxhash.xxh3_64_hexdigest(png)}"', "Content-Disposition": "inline"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(png, 200, headers, "image/png")


def _terms(request: Request, usual: int, most: int) -> MediaTerms:
    name = query_text(request, "name")
    if not name:
        raise HttpError(422, "name is missing; give the name of a logged value")
    x, rank = query_text(request, "x") or "step", query_int(request, "rank", 0, 10**6)
    limit = query_int(request, "limit", usual, most)
    return MediaTerms(run_of(request), name, x, rank, _number(request, "from"), _number(request, "to"), max(limit, 1))


def _number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise HttpError(422, f"{name}={text[:40]!r} is no number; correct it")
    return number
