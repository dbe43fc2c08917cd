"""The web page: static files, login and logout; the page itself reads the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from relive.server.authorization import COOKIE, Authorization
from relive.server.http import HttpError, read_body

STATIC = Path(__file__).parent / "static"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_STATIC_FILES = {"style.css", "pages.js", "chart.js", "icon.svg"}
# Nothing is loaded from other sites, and no other site may show our pages in a frame.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_MONTH_S = 30 * 24 * 3600


class WebPages:
    """Endpoints of the single-page app, its static files, and login."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization

    def endpoints(self) -> Iterator[tuple[str, str, Callable[..., Any]]]:
        for path in ("/", "/runs/{run}", "/leaderboard", "/registry", "/registry/{model}"):
            yield "GET", path, self.page
        yield "GET", "/static/{file}", self.file
        yield "GET", "/login", self.login_page
        yield "POST", "/login", self.log_in
        yield "POST", "/logout", self.log_out

    async def page(self, request: Request) -> Response:
        token = self._authorization.identify(request)
        if token is None or not token.allows("read"):
            return RedirectResponse("/login", 303, headers={"Cache-Control": "no-store"})
        return _static_response("page.html")

    async def file(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name not in _STATIC_FILES:
            raise HttpError(404, "no such file; reload the page")
        return _static_response(name)

    async def login_page(self, _request: Request) -> Response:
        return _static_response("login.html")

    async def log_in(self, request: Request) -> Response:
        """Exchanges a token with the scope `read` for a cookie that scripts can't read."""
        form = parse_qs((await read_body(request, 10_000)).decode("utf-8", "replace"))
        text = form.get("token", [""])[0].strip()
        token = self._authorization.find_token(text)
        if token is None or not token.allows("read"):
            return _static_response("login.html", 401)
        response = RedirectResponse("/", 303)
        secure = request.headers.get("x-forwarded-proto") == "https"
        response.set_cookie(COOKIE, text, max_age=_MONTH_S, httponly=True, samesite="strict", secure=secure)
        return response

    async def log_out(self, _request: Request) -> Response:
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response


def _static_response(name: str, status: int = 200) -> Response:
    path = STATIC / name
    return Response(path.read_bytes(), status, _HEADERS, _MEDIA_TYPES[path.suffix])
