"""Authorization of requests: each needs a token with the scope of its route, except on the few public routes."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from relive.errors import ReliveError
from relive.server.access import LocalAccess
from relive.server.http import CONNECTION, LEASE, Admission, HttpError, Lease, error_response, json_response
from relive.server.metrics import Metrics
from relive.server.token_use import TokenUse
from relive.server.tokens import LOCAL_ID, LOOPBACK, OPEN_ACCESS, Token, Tokens, local_token

COOKIE = "relive_token"
TOKEN = "relive.token"
_STRANGER = "?"  # whom the requests to public routes are counted for


class Authorization:
    """Wraps endpoints: checks the token, counts requests, and turns errors into responses."""

    def __init__(
        self, tokens: Tokens, metrics: Metrics, admission: Admission, *, is_open: bool, local: LocalAccess | None = None
    ) -> None:
        self._tokens = tokens
        self._use = TokenUse(tokens.folder)
        self._metrics = metrics
        self._admission = admission
        self._is_open = is_open
        self.local = local
        self.cookie = COOKIE if local is None else local.cookie

    def protect(self, endpoint: Callable[..., Any], scope: str | None, route: str) -> ProtectedEndpoint:
        """Returns the endpoint restricted to tokens with the scope; None makes it public."""
        return ProtectedEndpoint(self, endpoint, scope, route)

    def admit(self, request: Request, scope: str | None) -> Lease:
        """Checks the token of a request, and counts the request for it; raises if it may not be answered."""
        self._check_origin(request)
        if scope is None:
            return self._admission.admit(_STRANGER, limited=False)  # few: `connection_guard` closes the others
        token = self.identify(request)
        if token is None:
            raise HttpError(
                401,
                "this request needs a token, and has none, an unknown or an expired one; set RELIVE_TOKEN, or ask the "
                "operator of the server for one",
            )
        if not token.allows(scope):
            raise HttpError(
                403, f"token {token.id} ({token.name}) lacks the scope {scope}; ask for a token with that scope"
            )
        request.scope[TOKEN] = token
        if self._is_open:
            return self._admission.admit("", limited=False)
        if token.id == LOCAL_ID:
            return self._admission.admit("", name=token.name, limited=False)
        self._use.note(token.id)
        if (connection := request.scope.get(CONNECTION)) is not None:
            connection.identify(token.id)
        return self._admission.admit(token.id, projects=token.projects, name=token.name)

    def count(self, route: str, method: str, status: int, took_s: float) -> None:
        self._metrics.count(route, method, status, took_s)

    def identify(self, request: Request) -> Token | None:
        """Returns the token of a request, or None."""
        if self._is_open:
            return OPEN_ACCESS
        text = _request_token(request, self.cookie)
        return self.find_token(text) if text else None

    def find_token(self, text: str) -> Token | None:
        """Returns the valid token with this text, or None."""
        if self.local is not None and self.local.knows(text):
            return local_token(self.local.user)
        return self._tokens.find(text)

    def close(self) -> None:
        self._use.save()

    def _check_origin(self, request: Request) -> None:
        """Rejects requests that a page of another site makes with our cookie, or to an open server on this machine."""
        host = request.headers.get("host", "")
        if (self._is_open or self.local is not None) and _host_name(host) not in LOOPBACK:
            raise HttpError(403, "this server is open to its own machine only; use the host name localhost")
        origin = request.headers.get("origin")
        if origin and request.method not in ("GET", "HEAD") and origin.partition("//")[2] != host:
            raise HttpError(403, "this request comes from a page of another site; send it from a page of this server")


class ProtectedEndpoint:
    """An ASGI application: one endpoint behind the check of its token, counted until its answer is sent."""

    def __init__(
        self, authorization: Authorization, endpoint: Callable[..., Any], scope: str | None, route: str
    ) -> None:
        self._authorization, self._endpoint, self._scope, self._route = authorization, endpoint, scope, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        request = Request(scope, receive, send)
        lease: Lease | None = None
        try:
            try:
                lease = scope[LEASE] = self._authorization.admit(request, self._scope)
                response: Response = await self._endpoint(request)
            except ReliveError as error:
                response = error_response(error)
            self._authorization.count(self._route, request.method, response.status_code, time.perf_counter() - begun)
            await response(scope, receive, send)
            if (connection := scope.get(CONNECTION)) is not None:
                await connection.drained()
        finally:
            if lease is not None:
                lease.release()


def token_of(request: Request) -> Token:
    """Returns the token that a request was admitted with."""
    token: Token = request.scope[TOKEN]
    return token


def _host_name(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _request_token(request: Request, name: str) -> str | None:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text:
        return text.strip()
    cookie = SimpleCookie(request.headers.get("cookie", "")).get(name)
    return cookie.value if cookie else None


async def handle_not_found(_request: Request, _error: Exception) -> Response:
    return json_response({"error": "no such route; /api/openapi.json lists the routes"}, 404)


async def handle_wrong_method(_request: Request, error: Any) -> Response:
    headers = dict(getattr(error, "headers", None) or {})
    return json_response({"error": "this route does not support the method; see /api/openapi.json"}, 405, headers)


async def handle_failure(_request: Request, error: Exception) -> Response:
    return json_response({"error": f"the server failed ({type(error).__name__}); see its log"}, 500)
