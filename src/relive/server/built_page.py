"""The built web page: its files in memory, compressed once, and its html with the path prefix of each request."""

from __future__ import annotations

import gzip
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from relive.server.access import url_prefix
from relive.server.http import HttpError

STATIC = Path(__file__).parent / "static"  # made by `make page`; wheels contain it
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Nothing is loaded from other sites, and no other site may show our pages in a frame.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'self'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_BASE = '<base href="/">'
_NOT_BUILT = (
    b"<!doctype html><html lang=en><title>relive</title><p>The page is not built: run <code>make page</code> in the "
    b"checkout, and start the server again. The API at <a href=api/openapi.json>api/openapi.json</a> works."
)


class BuiltPage:
    """The files of the page."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._html = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}
        self._files = {path.name: path.read_bytes() for path in (folder / "static").glob("*.*")}
        self._gzipped = {name: gzip.compress(data, 9, mtime=0) for name, data in self._files.items()}

    def html(self, request: Request, name: str, status: int = 200) -> Response:
        """Returns an html file, whose relative addresses are below the prefix that the browser sees."""
        text = self._html.get(name)
        if text is None:
            return Response(_NOT_BUILT, 503, _HEADERS, _MEDIA_TYPES[".html"])
        based = text.replace(_BASE, f'<base href="{escape(url_prefix(request))}/">', 1)
        return Response(based.encode(), status, _HEADERS, _MEDIA_TYPES[".html"])

    def file(self, request: Request, name: str) -> Response:
        """Returns a static file; names with a hash never change their content."""
        data, suffix = self._files.get(name), Path(name).suffix
        if data is None or suffix not in _MEDIA_TYPES:
            raise HttpError(404, "no such file; reload the page")
        headers = {**_HEADERS, "Vary": "Accept-Encoding"}
        if "-" in name:
            headers["Cache-Control"] = "public, immutable, max-age=31536000"
        if "gzip" in request.headers.get("accept-encoding", ""):
            data, headers["Content-Encoding"] = self._gzipped[name], "gzip"
        return Response(data, 200, headers, _MEDIA_TYPES[suffix])
