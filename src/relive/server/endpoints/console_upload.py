"""Endpoints that take the console output of runs, from those who may append to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relive.server.endpoints.ingest import number, run_of, sender_of
from relive.server.http import HttpError, decompress_body, json_response, lease_of, read_body, refuse_unknown
from relive.store.console import MAX_PIECE_BYTES, ConsoleHeld, ConsoleIntake
from relive.store.sync import owners_of


class ConsoleEndpoints:
    """Takes console files, piece by piece."""

    def __init__(self, console: ConsoleIntake, store: Path) -> None:
        self._console, self._store = console, store

    async def held(self, request: Request) -> Response:
        """Returns how much of a file is here."""
        refuse_unknown(request, ())
        run, file = run_of(request), request.path_params["file"]
        self._check_owner(request, run)
        return _answer(await lease_of(request).work(lambda: self._console.held(run, file)))

    async def put(self, request: Request) -> Response:
        """Takes a piece that begins where the file ends, or at 0, where it replaces the file; 409 if it does not."""
        refuse_unknown(request, ("at", "bytes"))
        run, file = run_of(request), request.path_params["file"]
        at, size = number(request, "at"), number(request, "bytes")
        if size > MAX_PIECE_BYTES:
            raise HttpError(413, f"a piece of {size} bytes is too long; send {MAX_PIECE_BYTES} at most")
        self._check_owner(request, run)
        body, encoding = await read_body(request, 2 * MAX_PIECE_BYTES), request.headers.get("content-encoding", "")

        def take() -> ConsoleHeld:
            return self._console.put(run, file, at, decompress_body(body, encoding, size))

        held = await lease_of(request).work(take)
        return _answer(held, 200 if held.size == at + size else 409)

    def _check_owner(self, request: Request, run: str) -> None:
        """Raises `NotOwner` for a run that another token began."""
        sender = sender_of(request)
        if sender is not None:
            owners_of(self._store).check_owner(run, sender)


def _answer(held: ConsoleHeld, status: int = 200) -> Response:
    found: dict[str, Any] = {"bytes": held.size, "digest": held.digest, "final": held.is_final}
    refusal = {} if status == 200 else {"error": f"the file has {held.size} bytes; go on from there, or begin at 0"}
    return json_response({**found, **refusal}, status)
