"""The pages for a browser: files of our own and nothing from elsewhere; they show what the API says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from relive.server.authorization import COOKIE, Authorization
from relive.server.http import Problem, read_body

STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {"style.css", "pages.js", "chart.js", "icon.svg"}
# Nothing is loaded from elsewhere, and no page of another site may show ours in a frame.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_MONTH_S = 30 * 24 * 3600


class Pages:
    """One page that shows whatever its address says, the files that it needs, and the door."""

    def __init__(self, guard: Authorization) -> None:
        self._guard = guard

    def endpoints(self) -> Iterator[tuple[str, str, Callable[..., Any]]]:
        for path in ("/", "/runs/{run}", "/leaderboard", "/registry", "/registry/{model}"):
            yield "GET", path, self.page
        yield "GET", "/static/{file}", self.file
        yield "GET", "/login", self.login
        yield "POST", "/login", self.enter
        yield "POST", "/logout", self.leave

    async def page(self, request: Request) -> Response:
        token = self._guard.who(request)
        if token is None or not token.allows("read"):
            return RedirectResponse("/login", 303, headers={"Cache-Control": "no-store"})
        return _file("page.html")

    async def file(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name not in _FILES:
            raise Problem(404, "there is no such file")
        return _file(name)

    async def login(self, _request: Request) -> Response:
        return _file("login.html")

    async def enter(self, request: Request) -> Response:
        """A token that may read becomes a cookie that scripts can't see."""
        form = parse_qs((await read_body(request, 10_000)).decode("utf-8", "replace"))
        word = form.get("token", [""])[0].strip()
        token = self._guard.find(word)
        if token is None or not token.allows("read"):
            return _file("login.html", 401)
        response = RedirectResponse("/", 303)
        secure = request.headers.get("x-forwarded-proto") == "https"
        response.set_cookie(COOKIE, word, max_age=_MONTH_S, httponly=True, samesite="strict", secure=secure)
        return response

    async def leave(self, _request: Request) -> Response:
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response


def _file(name: str, status: int = 200) -> Response:
    path = STATIC / name
    return Response(path.read_bytes(), status, _HEADERS, _TYPES[path.suffix])
