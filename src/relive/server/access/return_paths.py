"""Where a browser goes after login: paths of this server only, also behind a proxy that adds a prefix."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request

MAX_PATH_CHARS = 4_000
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")
# No second slash or backslash after the first: browsers take `//host` and `/\\host` for other sites.
_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")


def url_prefix(request: Request) -> str:
    """Returns the path below which a proxy serves us: "" or like "/relive"."""
    given = request.headers.get("x-forwarded-prefix", "").rstrip("/") or str(request.scope.get("root_path", ""))
    return given if _PREFIX.fullmatch(given) and ".." not in given else ""


def login_path(request: Request) -> str:
    """Returns the path of the login page, which leads back to the page that was asked for."""
    prefix = url_prefix(request)
    asked = f"{prefix}{quote(request.url.path)}" + (f"?{request.url.query}" if request.url.query else "")
    keeps = asked != f"{prefix}/" and len(asked) <= MAX_PATH_CHARS
    return f"{prefix}/login" + (f"?next={quote(asked, safe='')}" if keeps else "")


def return_path(request: Request) -> str:
    """Returns the path to go to after login: the parameter `next`, or the first page."""
    prefix, given = url_prefix(request), request.query_params.get("next", "")
    is_ours = _PATH.fullmatch(given) is not None and given.startswith(f"{prefix}/") and len(given) <= MAX_PATH_CHARS
    return given if is_ours else f"{prefix}/"
