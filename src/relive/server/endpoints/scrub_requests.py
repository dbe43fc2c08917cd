"""The endpoint that removes a text from the journals of a run; the text itself is neither logged nor audited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from relive.errors import ReliveError
from relive.model import RUNNING
from relive.server.endpoints.ingest import run_of, sender_of
from relive.server.http import HttpError, decode_json_body, json_bytes_response
from relive.server.questions import ReaderPool
from relive.store.catalog import Index, find_run
from relive.store.gc import scrub_run
from relive.store.sync import Intake, NotOwner, owners_of

MAX_PATTERN_CHARS = 1_000
_SEE = 'send {"pattern": "…"}'


class _ScrubBody(msgspec.Struct, forbid_unknown_fields=True):
    pattern: str
    dry_run: bool = False


class ScrubEndpoints:
    """Scrubs runs for their owners, in a reader process with limits: a pattern may take for ever to match."""

    def __init__(self, intake: Intake, readers: ReaderPool, store: Path, rebuild_index: Callable[[], None]) -> None:
        self._intake, self._readers, self._store = intake, readers, store
        self._rebuild_index = rebuild_index

    async def scrub(self, request: Request) -> Response:
        """Replaces what matches a regular expression by *** in the journals of a run that has ended."""
        run = run_of(request)
        body = await decode_json_body(request, _ScrubBody, 64 << 10, _SEE)
        if not 0 < len(body.pattern) <= MAX_PATTERN_CHARS:
            raise HttpError(422, f"the pattern must have 1 to {MAX_PATTERN_CHARS} characters; shorten it")
        self._check_owner(request, run)
        if body.dry_run:
            return json_bytes_response(await self._ask(request, run, body))
        await asyncio.wrap_future(self._intake.pause(run))  # and with that, the redo log is empty
        try:
            answer = await self._ask(request, run, body)
        finally:
            self._intake.resume(run)
        places = msgspec.json.decode(answer)["places"]
        self._audit(request, run, "scrubbed", places=places)
        if places:
            self._rebuild_index()  # all of it: old rows of a run stay in its files until they are written anew
        return json_bytes_response(answer)

    async def _ask(self, request: Request, run: str, body: _ScrubBody) -> bytes:
        finishes = not body.dry_run
        return await self._readers.ask(request, _scrub, run, body.pattern, body.dry_run, finishes=finishes)

    def _check_owner(self, request: Request, run: str) -> None:
        sender = sender_of(request)
        try:
            if sender is not None:
                owners_of(self._store).check_owner(run, sender)
        except NotOwner:
            self._audit(request, run, "scrub-refused")
            raise

    def _audit(self, request: Request, run: str, event: str, **facts: Any) -> None:
        sender = sender_of(request)
        who = {} if sender is None else {"token": sender.token, "name": sender.name, "address": sender.address}
        self._intake.audit.record(event, run=run, always=event == "scrubbed", **who, **facts)


def _scrub(index: Index, run: str, pattern: str, dry_run: bool) -> dict[str, Any]:
    entry = find_run([entry for entry in index.runs() if entry.record.run == run], run)
    if entry.record.outcome == RUNNING:
        raise ReliveError(f"run {run} is running; stop it first, or wait for its end")
    return msgspec.to_builtins(scrub_run(index.home, run, pattern, dry_run=dry_run))  # type: ignore[no-any-return]
