"""The endpoint of curves: many runs and names over one x axis, within a budget of points."""

from __future__ import annotations

import math

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from relive.query.series import SeriesTerms, read_series
from relive.server.endpoints.page.shared_answers import SharedAnswers
from relive.server.http import HttpError, compact_response, decode_json_body

MAX_BODY = 1 << 20
MAX_RUNS, MAX_NAMES, MAX_PIXELS, MAX_RANK = 2_000, 500, 20_000, 1_000_000
_SEE = "see POST /api/series in /api/openapi.json for the expected body"


class CurvesBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /api/series."""

    runs: list[str]
    names: list[str]
    pixels: int
    x: str = "step"
    start: float | None = msgspec.field(default=None, name="from")
    end: float | None = msgspec.field(default=None, name="to")
    rank: int = 0
    all_ranks: bool = False
    envelopes: bool = True


class CurveEndpoints:
    """The endpoint of curves."""

    def __init__(self, answers: SharedAnswers) -> None:
        self._answers = answers

    async def curves(self, request: Request) -> Response:
        """Returns the values of some names of some runs, in buckets."""
        body = await decode_json_body(request, CurvesBody, MAX_BODY, _SEE)
        _check(body)
        terms = SeriesTerms(
            tuple(dict.fromkeys(body.runs)), tuple(dict.fromkeys(body.names)), body.pixels, body.x, body.start,
            body.end, body.rank, body.all_ranks, body.envelopes,
        )  # fmt: skip
        return compact_response(request, await self._answers.ask(request, read_series, terms))


def _check(body: CurvesBody) -> None:
    bounds = (
        ("runs", len(body.runs), 0, MAX_RUNS), ("names", len(body.names), 0, MAX_NAMES),
        ("pixels", body.pixels, 1, MAX_PIXELS), ("rank", body.rank, 0, MAX_RANK), ("x", len(body.x), 1, 200),
    )  # fmt: skip
    for name, found, least, most in bounds:
        if not least <= found <= most:
            raise HttpError(422, f"{name} is or has {found}, not {least} to {most}; correct it")
    if any(one is not None and not math.isfinite(one) for one in (body.start, body.end)):
        raise HttpError(422, "from and to are finite numbers; correct them")
