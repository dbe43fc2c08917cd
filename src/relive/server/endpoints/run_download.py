"""Endpoints for fetching a run: its journal files and the packs of its checkpoints, part by part."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relive.server.endpoints.ingest import number, run_of
from relive.server.http import HttpError, Reader, json_response
from relive.store import Home
from relive.store.catalog import Index, find_run
from relive.store.chunks import list_checkpoint_files
from relive.store.sync import check_pack_name, run_fetch


class DownloadEndpoints:
    """Endpoints that serve the files of a run unchanged."""

    def __init__(self, home: Home, reader: Reader) -> None:
        self._home = home
        self._reader = reader

    async def files(self, request: Request) -> Response:
        """Lists the files of a run's journals."""
        run = run_of(request)
        found = await asyncio.to_thread(run_fetch.list_journal_files, self._home.run_folder(run))
        if not found:
            raise HttpError(404, f"no run {run} in this store; /api/runs lists them")
        return json_response({"files": [{"name": name, "size": size} for name, size in found]})

    async def file(self, request: Request) -> Response:
        """Returns a part of a journal file."""
        path = run_fetch.journal_file_path(self._home.run_folder(run_of(request)), request.path_params["file"])
        return await _file_part(path, request)

    async def checkpoints(self, request: Request) -> Response:
        """Lists the stored chunks and packs that the checkpoints of a run consist of."""
        run = run_of(request)

        def ask(index: Index) -> dict[str, Any]:
            find_run([entry for entry in index.runs() if entry.record.run == run], run)
            found, folder = list_checkpoint_files(index.home, run), index.home.packs
            sizes = {name: os.path.getsize(folder / name) for name in sorted(found.packs)}
            return {"count": found.count, "manifests": sorted(found.manifests), "packs": sizes}

        return json_response(await self._reader.ask(ask))

    async def pack(self, request: Request) -> Response:
        """Returns a part of a pack."""
        return await _file_part(self._home.packs / check_pack_name(request.path_params["pack"]), request)


async def _file_part(path: Path | None, request: Request) -> Response:
    at = number(request, "at")
    if path is None:
        raise HttpError(404, "no such file; /api/openapi.json describes the file names")
    data = await asyncio.to_thread(_read_part, path, at)
    return Response(data, headers={"Cache-Control": "no-store"}, media_type="application/octet-stream")


def _read_part(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), run_fetch.PART_BYTES, at)
    except FileNotFoundError:
        raise HttpError(404, f"{path.name} is not in this store; it may have been garbage-collected") from None
