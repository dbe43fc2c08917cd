"""Authorization of requests: each needs a token with the scope of its route, except on the few public routes."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relive.errors import ReliveError
from relive.server.http import HttpError, error_response, json_response
from relive.server.metrics import Metrics
from relive.server.tokens import LOOPBACK, OPEN_ACCESS, Token, Tokens

COOKIE = "relive_token"
MAX_IN_FLIGHT = 512  # concurrent requests; more are answered with 503 and Retry-After


class Authorization:
    """Wraps endpoints: checks the token, counts requests, and turns errors into responses."""

    def __init__(self, tokens: Tokens, metrics: Metrics, *, is_open: bool) -> None:
        self._tokens = tokens
        self._metrics = metrics
        self._is_open = is_open

    def protect(self, endpoint: Callable[..., Any], scope: str | None, route: str) -> Callable[..., Any]:
        """Returns the endpoint restricted to tokens with the scope; None makes it public."""

        async def protected(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                self._check(request, scope)
                response: Response = await endpoint(request)
            except ReliveError as error:
                response = error_response(error)
            finally:
                self._metrics.in_flight -= 1
            self._metrics.count(route, request.method, response.status_code, time.perf_counter() - begun)
            return response

        return protected

    def _check(self, request: Request, scope: str | None) -> None:
        self._metrics.in_flight += 1
        if self._metrics.in_flight > MAX_IN_FLIGHT:
            raise HttpError(503, "too many concurrent requests; retry later", retry_after_s=1)
        self._check_origin(request)
        if scope is None:
            return
        token = self.identify(request)
        if token is None:
            raise HttpError(
                401, "this request needs a token; set RELIVE_TOKEN, or ask the operator of the server for one"
            )
        if not token.allows(scope):
            raise HttpError(
                403, f"token {token.id} ({token.name}) lacks the scope {scope}; ask for a token with that scope"
            )

    def identify(self, request: Request) -> Token | None:
        """Returns the token of a request, or None."""
        if self._is_open:
            return OPEN_ACCESS
        text = _request_token(request)
        return self.find_token(text) if text else None

    def find_token(self, text: str) -> Token | None:
        """Returns the valid token with this text, or None."""
        return self._tokens.find(text)

    def _check_origin(self, request: Request) -> None:
        """Rejects requests that a page of another site makes with our cookie, or to an open server on this machine."""
        host = request.headers.get("host", "")
        if self._is_open and _host_name(host) not in LOOPBACK:
            raise HttpError(403, "this server is open to its own machine only; use the host name localhost")
        origin = request.headers.get("origin")
        if origin and request.method not in ("GET", "HEAD") and origin.partition("//")[2] != host:
            raise HttpError(403, "this request comes from a page of another site; send it from a page of this server")


def _host_name(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _request_token(request: Request) -> str | None:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text:
        return text.strip()
    cookie = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    return cookie.value if cookie else None


async def handle_not_found(_request: Request, _error: Exception) -> Response:
    return json_response({"error": "no such route; /api/openapi.json lists the routes"}, 404)


async def handle_wrong_method(_request: Request, error: Any) -> Response:
    headers = dict(getattr(error, "headers", None) or {})
    return json_response({"error": "this route does not support the method; see /api/openapi.json"}, 405, headers)


async def handle_failure(_request: Request, error: Exception) -> Response:
    return json_response({"error": f"the server failed ({type(error).__name__}); see its log"}, 500)
