"""What recording processes ask: take this range of a journal, take this part of a chunk, how far are you?"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import msgspec
import xxhash
from starlette.requests import Request
from starlette.responses import Response

from relive.server.authorization import token_of
from relive.server.endpoints.ingest_validation import check
from relive.server.endpoints.send_interval import SendInterval
from relive.server.http import (
    BODY_BYTES,
    HttpError,
    decode_json_body,
    decompress_body,
    json_response,
    lease_of,
    read_body,
)
from relive.server.tokens import OPEN_ACCESS
from relive.store import JournalName
from relive.store.chunks import Chunks
from relive.store.journal import line_schema
from relive.store.sync import ChunkUploads, Intake, JournalRange, Sender

_RUN = re.compile(r"[0-9a-f]{12}")
MAX_NAMES = 10_000
SHORT_BYTES = 32 << 10  # checked at once: a thread would take longer


class _MissingNames(msgspec.Struct):
    names: list[str]


class IngestEndpoints:
    """The routes that write."""

    def __init__(self, intake: Intake, chunks: Chunks, uploads: ChunkUploads) -> None:
        self._intake = intake
        self._chunks = chunks
        self._uploads = uploads
        self._pacing = SendInterval()

    async def position(self, request: Request) -> Response:
        """How much of a journal is here."""
        held = self._intake.held(*journal_of(request))
        return json_response({"slots": held.slots, "lines": held.lines})

    async def append(self, request: Request) -> Response:
        """Take a range. The answer comes when it is on disk."""
        run, journal = journal_of(request)
        given = await self._receive(request, run, journal)
        held = await asyncio.wrap_future(self._intake.submit(given))
        pause_s = self._pacing.pause_s(run, journal)
        return json_response({"slots": held.slots, "lines": held.lines, "pause_s": pause_s})

    async def _receive(self, request: Request, run: str, journal: JournalName) -> JournalRange:
        """Reads a range and checks all of it; what is long is unpacked and checked in a thread."""
        slots_at, slots_bytes = number(request, "slots"), number(request, "slots_bytes")
        lines_at, lines_bytes = number(request, "lines"), number(request, "lines_bytes")
        size = slots_bytes + lines_bytes
        if size > BODY_BYTES:
            raise HttpError(413, f"a range of {size} bytes is too long; send {BODY_BYTES} at most")
        body = await read_body(request)
        encoding, digest = request.headers.get("content-encoding", ""), request.query_params.get("digest")
        final, sender = request.query_params.get("final", "0") == "1", sender_of(request)

        def unpack() -> JournalRange:
            plain = decompress_body(body, encoding, size)
            if plain and xxhash.xxh3_128_hexdigest(plain) != digest:
                raise HttpError(422, "the bytes are not those that were hashed; send them again")
            slots, lines = memoryview(plain)[:slots_bytes], plain[slots_bytes:]
            given = JournalRange(run, journal, slots_at, slots, lines_at, lines, final, sender)
            return replace(given, project=check(given))

        if size <= SHORT_BYTES:
            return unpack()
        lease = lease_of(request)
        lease.hold(size)
        return await lease.work(unpack)

    async def missing(self, request: Request) -> Response:
        """Which of some chunks are not here."""
        names = (await decode_json_body(request, _MissingNames, 2 << 20, 'send {"names": ["…"]}')).names
        if len(names) > MAX_NAMES:
            raise HttpError(413, f"{len(names)} names are too many; ask for {MAX_NAMES} at most")
        there = await lease_of(request).work(lambda: [name for name in names if name not in self._chunks])
        return json_response({"missing": there})

    async def upload_position(self, request: Request) -> Response:
        """How much of a chunk is here."""
        name = request.path_params["chunk"]
        at = self._uploads.position(name)
        return json_response({"complete": at is None, "at": at or 0})

    async def upload(self, request: Request) -> Response:
        """Take a part of a chunk's file; the last one is answered when the whole is verified and on disk."""
        name, at, size = request.path_params["chunk"], number(request, "at"), number(request, "size")
        part = await read_body(request)
        there = await lease_of(request).work(lambda: self._uploads.put(name, at, size, part))
        return part_taken(there, at + len(part))


def sender_of(request: Request) -> Sender | None:
    """Who sends; None on an open server, where runs belong to nobody."""
    token = token_of(request)
    if token is OPEN_ACCESS:
        return None
    address = request.client.host if request.client else ""
    return Sender(token.id, token.name, token.projects, token.allows("admin"), address)


def part_taken(there: int | None, wanted: int) -> Response:
    """What is said of a part: that all is there, or where to go on, which is elsewhere if it did not join on."""
    if there is None or there == wanted:
        return json_response({"complete": there is None, "at": there or 0})
    return json_response(
        {"error": f"this part belongs elsewhere; go on from {there}", "complete": False, "at": there}, 409
    )


def journal_of(request: Request) -> tuple[str, JournalName]:
    """The run and the journal that a path names; nothing else gets to the disk."""
    run, stem = run_of(request), request.path_params["journal"]
    journal = JournalName.parse(stem) if len(stem) < 30 and stem.isascii() else None
    if journal is None or journal.stem != stem or journal.rank > line_schema.MAX_RANKS:
        raise HttpError(404, f"{stem[:40]!r} is no journal; journals are called like 0, 3 or 0-4711")
    return run, journal


def run_of(request: Request) -> str:
    run: str = request.path_params["run"]
    if not _RUN.fullmatch(run):
        raise HttpError(404, f"{run[:40]!r} is no run; the id of a run has 12 hexadecimal digits")
    return run


def number(request: Request, name: str) -> int:
    """A number that the query must have."""
    text = request.query_params.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise HttpError(422, f"{name}={text[:40]!r} is not a number of bytes; give one")
    return int(text)
