"""The web page: static files, login and logout; the page itself reads the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from relive.server.access import login_path, return_path, url_prefix
from relive.server.authorization import Authorization
from relive.server.built_page import BuiltPage
from relive.server.http import read_body

# The client-side routes: each is answered with the same html.
_PAGES = (
    "/", "/runs/{run}", "/compare", "/leaderboard", "/explore", "/models", "/models/{model}", "/registry",
    "/registry/{model}", "/ask",
)  # fmt: skip
_MONTH_S = 30 * 24 * 3600


class WebPages:
    """Endpoints of the single-page app, its static files, and login."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._built = BuiltPage()

    def endpoints(self) -> Iterator[tuple[str, str, Callable[..., Any]]]:
        for path in _PAGES:
            yield "GET", path, self.page
        yield "GET", "/static/{file}", self.file
        yield "GET", "/login", self.login_page
        yield "POST", "/login", self.log_in
        yield "POST", "/logout", self.log_out

    async def page(self, request: Request) -> Response:
        token = self._authorization.identify(request)
        if token is None or not token.allows("read"):
            return RedirectResponse(login_path(request), 303, headers={"Cache-Control": "no-store"})
        return self._built.html(request, "index.html")

    async def file(self, request: Request) -> Response:
        return self._built.file(request, request.path_params["file"])

    async def login_page(self, request: Request) -> Response:
        """Returns the form; the ticket of `relive ui` is exchanged for a cookie instead, once."""
        ticket, local = request.query_params.get("ticket"), self._authorization.local
        if ticket is None or local is None or request.method != "GET":
            return self._built.html(request, "login.html")
        token = self._authorization.identify(request)
        if token is not None and token.allows("read"):  # the same browser opens the address again
            return _redirect(return_path(request))
        secret = local.redeem(ticket)
        return self._let_in(request, secret) if secret is not None else self._built.html(request, "login.html", 401)

    async def log_in(self, request: Request) -> Response:
        """Exchanges a token with the scope `read` for a cookie that scripts can't read."""
        form = parse_qs((await read_body(request, 10_000)).decode("utf-8", "replace"))
        text = form.get("token", [""])[0].strip()
        token = self._authorization.find_token(text)
        if token is None or not token.allows("read"):
            return self._built.html(request, "login.html", 401)
        return self._let_in(request, text)

    async def log_out(self, request: Request) -> Response:
        prefix = url_prefix(request)
        response = _redirect(f"{prefix}/login")
        response.delete_cookie(self._authorization.cookie, path=prefix or "/")
        return response

    def _let_in(self, request: Request, secret: str) -> Response:
        """Sets the cookie, and leads to the page that was asked for.

        The cookie comes along with links from other sites, so that a link in a chat opens; requests that change
        something are refused if they come from another site, by their origin.
        """
        response = _redirect(return_path(request))
        response.set_cookie(
            self._authorization.cookie, secret, max_age=_MONTH_S, path=url_prefix(request) or "/", httponly=True,
            samesite="lax", secure=request.headers.get("x-forwarded-proto") == "https",
        )  # fmt: skip
        return response


def _redirect(path: str) -> Response:
    return RedirectResponse(path, 303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
