"""Endpoints for fetching a run: its journal and console files, and the packs of its checkpoints, part by part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from relive.server.endpoints.ingest import number, run_of
from relive.server.http import HttpError, json_bytes_response, json_response, lease_of
from relive.server.questions import ReaderPool
from relive.store import Home
from relive.store.catalog import Index, find_run
from relive.store.chunks import list_checkpoint_files
from relive.store.console import console_file_path
from relive.store.sync import check_pack_name, run_fetch


class DownloadEndpoints:
    """Endpoints that serve the files of a run unchanged."""

    def __init__(self, home: Home, readers: ReaderPool) -> None:
        self._home = home
        self._readers = readers

    async def files(self, request: Request) -> Response:
        """Lists the files of a run's journals, and those with what it printed."""
        run = run_of(request)
        await self._check_visible(request, run)
        folder = self._home.run_folder(run)
        found = await lease_of(request).work(lambda: run_fetch.list_journal_files(folder))
        if not found:
            raise HttpError(404, f"no run {run} in this store; /api/runs lists them")
        console = await lease_of(request).work(lambda: run_fetch.describe_console_files(folder))
        return json_response({"files": [{"name": name, "size": size} for name, size in found], "console": console})

    async def file(self, request: Request) -> Response:
        """Returns a part of a journal or console file."""
        run = run_of(request)
        await self._check_visible(request, run)
        folder, name = self._home.run_folder(run), request.path_params["file"]
        path = run_fetch.journal_file_path(folder, name) or console_file_path(folder, name)
        return await _file_part(path, request)

    async def checkpoints(self, request: Request) -> Response:
        """Lists the stored chunks and packs that the checkpoints of a run consist of."""
        return json_bytes_response(await self._readers.ask(request, _list_checkpoints, run_of(request)))

    async def _check_visible(self, request: Request, run: str) -> None:
        """Raises `NotFound` for a run of a project that the token is not for."""
        if lease_of(request).projects:
            await self._readers.ask(request, _find, run)

    async def pack(self, request: Request) -> Response:
        """Returns a part of a pack."""
        return await _file_part(self._home.packs / check_pack_name(request.path_params["pack"]), request)


def _find(index: Index, run: str) -> str:
    return find_run([entry for entry in index.runs() if entry.record.run == run], run).record.run


def _list_checkpoints(index: Index, run: str) -> dict[str, Any]:
    _find(index, run)
    found, folder = list_checkpoint_files(index.home, run), index.home.packs
    sizes = {name: os.path.getsize(folder / name) for name in sorted(found.packs)}
    return {"count": found.count, "manifests": sorted(found.manifests), "packs": sizes}


async def _file_part(path: Path | None, request: Request) -> Response:
    at = number(request, "at")
    if path is None:
        raise HttpError(404, "no such file; /api/openapi.json describes the file names")
    lease = lease_of(request)
    lease.hold(run_fetch.PART_BYTES)
    data = await lease.work(lambda: _read_part(path, at))
    return Response(data, headers={"Cache-Control": "no-store"}, media_type="application/octet-stream")


def _read_part(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), run_fetch.PART_BYTES, at)
    except FileNotFoundError:
        raise HttpError(404, f"{path.name} is not in this store; it may have been garbage-collected") from None
