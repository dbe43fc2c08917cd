"""Downloads and previews artifacts. Their bytes are foreign: no browser may run them, or guess what they are."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from relive.errors import Damaged
from relive.hashing import hasher
from relive.server.endpoints.ingest import run_of
from relive.server.endpoints.run import run_remains
from relive.server.http import HttpError, json_response, lease_of
from relive.server.questions import ReaderPool
from relive.store.chunks import Chunks
from relive.store.sync import MAX_CHUNK_BYTES, read_decoded

PREVIEW_BYTES = 256 << 10
PREVIEW_ROWS = 200
PREVIEW_COLUMNS = 100
MAX_NAME_CHARS = 4_000
# An artifact that a browser opens by itself is shown without scripts, styles, forms or access to anything.
FOREIGN_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


class ArtifactEndpoints:
    """Serves the bytes of artifacts, piece by piece, each compared with its name."""

    def __init__(self, readers: ReaderPool, chunks: Chunks) -> None:
        self._readers, self._chunks = readers, chunks

    async def artifact(self, request: Request) -> Response:
        """Returns an artifact: as a file to keep, inline if it is an image, or as a preview in JSON."""
        name, file = request.path_params["artifact"], request.query_params.get("file", "")
        if len(name) > MAX_NAME_CHARS or len(file) > MAX_NAME_CHARS:
            raise HttpError(422, f"the name is longer than {MAX_NAME_CHARS} characters; shorten it")
        raw = await self._readers.ask(request, run_remains.find_artifact, run_of(request), name, file)
        found = msgspec.json.decode(raw)
        if request.query_params.get("preview") == "1":
            return await self._preview(request, found)
        is_image = found["preview"] == "image" and request.query_params.get("download") != "1"
        suffix = found["name"].rpartition(".")[2].lower()
        media = run_remains.IMAGES[suffix] if is_image else "application/octet-stream"
        pieces = self._pieces(found["chunks"])
        first = await lease_of(request).work(lambda: next(pieces, b""))  # what is missing is told by a status
        headers = {**FOREIGN_HEADERS, "Content-Disposition": _disposition(found["name"], inline=is_image)}
        return StreamingResponse(_send(request, first, pieces), headers=headers, media_type=media)

    async def _preview(self, request: Request, found: dict[str, Any]) -> Response:
        kind = found["preview"]
        if kind not in ("text", "table"):
            raise HttpError(422, "this artifact has no preview as text; download it with ?download=1")
        pieces = self._pieces(found["chunks"])
        content = await lease_of(request).work(lambda: _beginning(pieces))
        is_cut = len(content) > PREVIEW_BYTES
        text = content[:PREVIEW_BYTES].decode("utf-8", "replace")
        shown = {"kind": kind, "name": found["name"], "truncated": is_cut}
        if kind == "text":
            return json_response({**shown, "text": text}, headers=FOREIGN_HEADERS)
        return json_response({**shown, **_table(text, found["name"], is_cut=is_cut)}, headers=FOREIGN_HEADERS)

    def _pieces(self, names: list[str]) -> Iterator[bytes]:
        for name in names:
            if name not in self._chunks:
                self._chunks.get(name)  # raises with the remedy
            hash_ = hasher(0)
            for piece in read_decoded(self._chunks.path(name), MAX_CHUNK_BYTES):
                hash_.update(piece)
                yield piece
            if hash_.hexdigest() != name:  # the client sees a broken transfer
                raise Damaged(f"chunk {name[:12]} is damaged; restore it from a backup")


async def _send(request: Request, first: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    piece, work = first, lease_of(request).work
    while piece:
        yield piece
        piece = await work(lambda: next(pieces, b""))


def _beginning(pieces: Iterator[bytes]) -> bytes:
    """Returns a little more than what a preview shows, if there is more."""
    found = b""
    for piece in pieces:
        found += piece
        if len(found) > PREVIEW_BYTES:
            break
    return found


def _table(text: str, name: str, *, is_cut: bool) -> dict[str, Any]:
    """Returns the first rows of a file of separated values; a last row that is cut is left out."""
    delimiter = "\t" if name.lower().endswith(".tsv") else ","
    whole = text.rpartition("\n")[0] if is_cut else text
    try:
        rows = list(csv.reader(io.StringIO(whole), delimiter=delimiter))
    except csv.Error as error:
        raise HttpError(422, f"this file is no table ({error}); download it with ?download=1") from error
    head, body = (rows[0], rows[1:]) if rows else ([], [])
    return {
        "columns": head[:PREVIEW_COLUMNS],
        "rows": [row[:PREVIEW_COLUMNS] for row in body[:PREVIEW_ROWS]],
        "truncated": is_cut or len(body) > PREVIEW_ROWS or len(head) > PREVIEW_COLUMNS,
    }


def _disposition(name: str, *, inline: bool) -> str:
    """Returns the header that names a file: its last part only, and nothing that could end the header."""
    base = name.replace("\\", "/").rpartition("/")[2] or "artifact"
    plain = "".join(letter if (letter.isalnum() and letter.isascii()) or letter in "._- " else "_" for letter in base)
    return f"{'inline' if inline else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{quote(base, safe='')}"
