"""Endpoints that plan, start, watch and stop questions to past runs; replay runs code, so few may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from relive.server.endpoints.ask.asker import AskBody, Asker, StartBody
from relive.server.http import HttpError, decode_json_body, json_response, read_body, refuse_unknown

MAX_BODY = 1 << 20
_SEE = "see /api/openapi.json for the expected body"
T = TypeVar("T")


class AskEndpoints:
    """Passes questions of tokens with the scope `replay` to the asker; tells all others the command."""

    def __init__(self, asker: Asker | None, token_of: Callable[[Request], Any]) -> None:
        self._asker, self._token_of = asker, token_of

    async def plan(self, request: Request) -> Response:
        """Plans a question, and returns its price; nothing is replayed yet."""
        refuse_unknown(request, ())
        body = await decode_json_body(request, AskBody, MAX_BODY, _SEE)
        body.check()
        asker = self._allowed(request)
        if asker is None:
            return self._refusal(request, body.commands())
        question, by = msgspec.to_builtins(body), str(self._token_of(request).name)
        return json_response(await _blocking(lambda: asker.plan(question, by)))

    async def start(self, request: Request) -> Response:
        """Begins to replay a plan."""
        refuse_unknown(request, ())
        raw = await read_body(request, MAX_BODY)
        try:
            body = msgspec.json.decode(raw or b"{}", type=StartBody)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HttpError(422, f"{error}; {_SEE}") from error
        asker, plan = self._require(request), request.path_params["plan"]
        return json_response(await _blocking(lambda: asker.start(plan, guesses=body.guesses)), 202)

    async def questions(self, request: Request) -> Response:
        """Returns the questions that were started, the newest first."""
        refuse_unknown(request, ())
        return json_response({"questions": self._require(request).questions()})

    async def question(self, request: Request) -> Response:
        """Returns how far a question is, and what came out."""
        refuse_unknown(request, ())
        return json_response(self._require(request).question(request.path_params["question"]))

    async def stop(self, request: Request) -> Response:
        """Stops a question; what it has is kept."""
        refuse_unknown(request, ())
        asker, question = self._require(request), request.path_params["question"]
        return json_response(await _blocking(lambda: asker.stop(question)))

    def _allowed(self, request: Request) -> Asker | None:
        """Returns the asker if the token may use it: it runs code, and it sees the runs of all projects."""
        token = self._token_of(request)
        return self._asker if token.allows("replay") and not token.projects else None

    def _require(self, request: Request) -> Asker:
        asker = self._allowed(request)
        if asker is None:
            raise HttpError(403, self._reason(request))
        return asker

    def _refusal(self, request: Request, commands: list[str]) -> Response:
        return json_response({"error": self._reason(request), "commands": commands}, 403)

    def _reason(self, request: Request) -> str:
        if self._asker is None:
            return "this server does not replay; run the command where the runs were recorded, or ask in `relive ui`"
        return f"token {self._token_of(request).id} may not replay; ask for one with the scope replay and no project"


async def _blocking(work: Callable[[], T]) -> T:
    """Waits for the asker in a thread of its own: a plan may take longer than others can wait for a shared one."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
