"""Parameters that a route does not know: they are refused, since who misspells one would get another answer unaware."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request

from relive.server.http.error_responses import HttpError

_MAX_SHOWN = 5


def refuse_unknown(request: Request, known: Collection[str]) -> None:
    """Raises 422 if the query has parameters that the route does not know."""
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        shown = ", ".join(repr(name[:40]) for name in unknown[:_MAX_SHOWN])
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise HttpError(422, f"unknown parameter {shown}; {takes}")
