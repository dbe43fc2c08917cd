"""The endpoint that tells a page who is logged in, and what they may do."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relive.server.http import json_response


class SessionEndpoint:
    """Describes the token of a request."""

    def __init__(self, home: str, token_of: Callable[[Request], Any], *, can_ask: bool) -> None:
        self._home, self._token_of, self._can_ask = home, token_of, can_ask

    async def session(self, request: Request) -> Response:
        """Returns the name and scopes of the token, whether it may replay here, the home, and our version."""
        token = self._token_of(request)
        return json_response(
            {
                "name": token.name, "scopes": list(token.scopes), "projects": list(token.projects),
                "can_ask": self._can_ask and token.allows("replay"), "home": self._home, "version": version("relive"),
            }
        )  # fmt: skip
