"""Endpoints that receive checkpoints: which packs are missing, how much of a pack is stored, and part uploads."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from relive.server.endpoints.ingest import MAX_NAMES, number, part_taken
from relive.server.http import decode_json_body, json_response, lease_of, read_body
from relive.store.sync import PackUploads


class _PackSizes(msgspec.Struct):
    packs: Annotated[dict[str, int], Meta(max_length=MAX_NAMES)]


class PackEndpoints:
    """Endpoints that receive packs of checkpoints."""

    def __init__(self, uploads: PackUploads) -> None:
        self._uploads = uploads

    async def missing(self, request: Request) -> Response:
        """Returns which of the given packs (name and size) are not stored."""
        body = await decode_json_body(request, _PackSizes, 2 << 20, 'send {"packs": {"name": 4096}}')
        has, work = self._uploads.has, lease_of(request).work
        return json_response(
            {"missing": await work(lambda: [name for name, size in body.packs.items() if not has(name, size)])}
        )

    async def position(self, request: Request) -> Response:
        """Returns how many bytes of a pack are stored."""
        at = self._uploads.position(request.path_params["pack"], _query_digest(request), number(request, "size"))
        return json_response({"complete": at is None, "at": at or 0})

    async def upload(self, request: Request) -> Response:
        """Stores a part of a pack; the response to the last part follows once the pack is verified and on disk."""
        pack, digest = request.path_params["pack"], _query_digest(request)
        at, size = number(request, "at"), number(request, "size")
        part = await read_body(request)

        def put() -> int | None:
            return self._uploads.put(pack, digest, at=at, size=size, part=part)

        return part_taken(await lease_of(request).work(put), at + len(part))


def _query_digest(request: Request) -> str:
    return request.query_params.get("digest", "")
