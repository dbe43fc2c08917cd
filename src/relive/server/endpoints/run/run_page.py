"""Endpoints of the page of one run. Each asks a reader; all are bounded, and refuse parameters they do not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relive.server.endpoints.ingest import run_of
from relive.server.endpoints.run import run_console, run_provenance, run_remains, run_sources
from relive.server.endpoints.runs import query_int, query_text
from relive.server.http import HttpError, compact_response, refuse_unknown
from relive.server.questions import ReaderPool

MAX_ROWS = 1_000
MAX_OFFSET = 10**9
MAX_PATH_CHARS = 4_000
_PAGE = ("limit", "offset")


class RunPageEndpoints:
    """Reads what a run was made of and what it left. `is_local`: whether all recorded repositories may be read."""

    def __init__(self, readers: ReaderPool, *, is_local: bool) -> None:
        self._readers, self._is_local = readers, is_local

    async def config(self, request: Request) -> Response:
        """Returns args and command line, and the args that differ from another run's."""
        ask, against = run_provenance.describe_config, query_text(request, "against")
        return await self._answer(request, ["against", *_PAGE], ask, against, *_page_of(request))

    async def data(self, request: Request) -> Response:
        """Returns declared and observed data, and what differs from another run's."""
        against = query_text(request, "against")
        return await self._answer(
            request, ["against", *_PAGE], run_provenance.describe_data, against, *_page_of(request)
        )

    async def environment(self, request: Request) -> Response:
        """Returns interpreter, packages, machine and variables, and what differs from another run's."""
        ask, against = run_provenance.describe_run_environment, query_text(request, "against")
        return await self._answer(request, ["against", *_PAGE], ask, against, *_page_of(request))

    async def commands(self, request: Request) -> Response:
        """Returns the commands that repeat, replay and restore a run."""
        return await self._answer(request, [], run_provenance.describe_commands)

    async def code(self, request: Request) -> Response:
        """Returns the files of a run's version, or the text of the one that `path` names."""
        path = request.query_params.get("path")
        if path is None:
            return await self._answer(
                request, ["path", *_PAGE], run_sources.list_code, self._is_local, *_page_of(request)
            )
        if len(path) > MAX_PATH_CHARS:
            raise HttpError(422, f"the parameter path is longer than {MAX_PATH_CHARS} characters; shorten it")
        return await self._answer(request, ["path"], run_sources.read_code, self._is_local, path)

    async def code_diff(self, request: Request) -> Response:
        """Returns what differs in the code from `against`: `parent`, `head`, or another run."""
        against = query_text(request, "against") or "parent"
        return await self._answer(request, ["against"], run_sources.diff_code, self._is_local, against)

    async def checkpoint_list(self, request: Request) -> Response:
        """Returns the checkpoints of a run with sizes and contents."""
        return await self._answer(request, _PAGE, run_remains.list_run_checkpoints, *_page_of(request))

    async def memo(self, request: Request) -> Response:
        """Returns the memoized calls of a run."""
        return await self._answer(request, _PAGE, run_remains.list_memo, *_page_of(request))

    async def console(self, request: Request) -> Response:
        """Returns what a run printed, page by page."""
        rank = query_int(request, "rank", 0, 10**6)
        return await self._answer(request, ["rank", *_PAGE], run_console.read_run_console, rank, *_page_of(request))

    async def artifacts(self, request: Request) -> Response:
        """Returns the artifacts of a run."""
        return await self._answer(request, _PAGE, run_remains.list_artifacts, *_page_of(request))

    async def _answer(self, request: Request, known: Any, function: Callable[..., Any], *args: Any) -> Response:
        refuse_unknown(request, known)
        return compact_response(request, await self._readers.ask(request, function, run_of(request), *args))


def _page_of(request: Request) -> tuple[int, int]:
    """Returns offset and limit of a request."""
    return query_int(request, "offset", 0, MAX_OFFSET), query_int(request, "limit", MAX_ROWS, MAX_ROWS)
