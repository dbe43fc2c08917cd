"""Who gets in: every request needs a token with the scope of its route, but for the few routes that are open to all."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relive.errors import ReliveError
from relive.server.http import Problem, answer, answer_to
from relive.server.metrics import Metrics
from relive.server.tokens import ANYBODY, LOOPBACK, Token, Tokens

COOKIE = "relive_token"
IN_FLIGHT = 512  # requests at a time; who comes then is asked to come again


class Authorization:
    """Wraps endpoints: lets in who may come, counts, and iterations errors into answers."""

    def __init__(self, tokens: Tokens, metrics: Metrics, *, is_open: bool) -> None:
        self._tokens = tokens
        self._metrics = metrics
        self._is_open = is_open

    def around(self, endpoint: Callable[..., Any], scope: str | None, route: str) -> Callable[..., Any]:
        """The endpoint, for those who have the scope; None lets everybody in."""

        async def guarded(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                self._check(request, scope)
                response: Response = await endpoint(request)
            except ReliveError as error:
                response = answer_to(error)
            finally:
                self._metrics.in_flight -= 1
            self._metrics.count(route, request.method, response.status_code, time.perf_counter() - begun)
            return response

        return guarded

    def _check(self, request: Request, scope: str | None) -> None:
        self._metrics.in_flight += 1
        if self._metrics.in_flight > IN_FLIGHT:
            raise Problem(503, "too many requests at once; come again", retry_after_s=1)
        self._check_origin(request)
        if scope is None:
            return
        token = self.who(request)
        if token is None:
            raise Problem(401, "this needs a token; set RELIVE_TOKEN, or ask who runs the server for one")
        if not token.allows(scope):
            raise Problem(403, f"token {token.id} ({token.name}) may not {scope}; ask for one with that scope")

    def who(self, request: Request) -> Token | None:
        """Whose request this is."""
        if self._is_open:
            return ANYBODY
        word = _shown(request)
        return self.find(word) if word else None

    def find(self, word: str) -> Token | None:
        """The token that this is, if it is one."""
        return self._tokens.find(word)

    def _check_origin(self, request: Request) -> None:
        """A page of another site must not use a browser that has our cookie, or an open server on its machine."""
        host = request.headers.get("host", "")
        if self._is_open and _name(host) not in LOOPBACK:
            raise Problem(403, "this server is open to its own machine only; call it localhost")
        origin = request.headers.get("origin")
        if origin and request.method not in ("GET", "HEAD") and origin.partition("//")[2] != host:
            raise Problem(403, "this request comes from a page of another site")


def _name(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _shown(request: Request) -> str | None:
    scheme, _, word = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and word:
        return word.strip()
    cookie = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    return cookie.value if cookie else None


async def not_found(_request: Request, _error: Exception) -> Response:
    return answer({"error": "there is nothing at this address; /api/openapi.json lists what there is"}, 404)


async def wrong_method(_request: Request, error: Any) -> Response:
    headers = dict(getattr(error, "headers", None) or {})
    return answer({"error": "this address does not know that method; see /api/openapi.json"}, 405, headers)


async def failed(_request: Request, error: Exception) -> Response:
    return answer({"error": f"the server failed ({type(error).__name__}); its log says more"}, 500)
