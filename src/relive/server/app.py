"""The application: which address leads to what."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from relive.server import routes
from relive.server.authorization import Authorization, failed, not_found, wrong_method
from relive.server.endpoints import ComparisonEndpoints, DownloadEndpoints, IngestEndpoints, PackEndpoints, RunEndpoints
from relive.server.http import Indexer, Reader, answer
from relive.server.metrics import TYPE, Metrics
from relive.server.openapi import Described, document
from relive.server.tokens import Tokens
from relive.server.web_pages import Pages
from relive.store import Home
from relive.store.chunks import Chunks, Packs
from relive.store.sync import ChunkUploads, Intake, PackUploads

Endpoint = Callable[[Request], Any]


class Service:
    """A store, and what answers for it."""

    def __init__(self, home: Home, *, is_open: bool = False) -> None:
        self.intake = Intake(home)  # refuses a second server
        self.metrics = Metrics()
        chunks = Chunks(home.chunks)
        self._reader = Reader(home)
        self._indexer = Indexer(home, self.intake)
        self._guard = Authorization(Tokens(home.path), self.metrics, is_open=is_open)
        self._ingest = IngestEndpoints(self.intake, chunks, ChunkUploads(home.path / "incoming", chunks))
        self._giving = DownloadEndpoints(home, self._reader)
        self._packing = PackEndpoints(PackUploads(home.path / "incoming", Packs(home.packs)))
        self._views, self._tables = RunEndpoints(self._reader, chunks), ComparisonEndpoints(self._reader)

    def app(self) -> Starlette:
        pages = Pages(self._guard)
        described = [self._route(described, endpoint) for described, endpoint in self.endpoints().items()]
        shown = [Route(path, self._guard.around(endpoint, None, path), methods=[method])
                 for method, path, endpoint in pages.endpoints()]  # fmt: skip
        return Starlette(
            routes=[*described, *shown],
            lifespan=self._lifespan,
            exception_handlers={404: not_found, 405: wrong_method, 500: failed},
        )

    def close(self) -> None:
        self._indexer.close()
        self._reader.close()
        self.intake.close()

    def endpoints(self) -> dict[Described, Endpoint]:
        """What answers at each address of the API."""
        ingest, packing, giving = self._ingest, self._packing, self._giving
        views, tables = self._views, self._tables
        return {  # an address with a name in it comes after one without
            routes.HEALTH: self.health, routes.METRICS: self.prometheus, routes.OPENAPI: self.openapi,
            routes.RUNS: views.runs, routes.ONE_RUN: views.run, routes.SERIES: views.series, routes.SKEW: tables.skew,
            routes.ALERT: tables.alert,
            routes.COMPARE: tables.compare, routes.LEADERBOARD: tables.leaderboard, routes.MODELS: tables.models,
            routes.ONE_MODEL: tables.model, routes.PROMOTE: tables.promote,
            routes.ONE_VERSION: tables.version, routes.RETIRE: tables.retire, routes.POINT: tables.point,
            routes.ROLL_BACK: tables.roll_back, routes.POSITION: ingest.position, routes.APPEND: ingest.append,
            routes.MISSING: ingest.missing, routes.CHUNK_BYTES: views.chunk, routes.UPLOADED: ingest.upload_position,
            routes.UPLOAD: ingest.upload, routes.MISSING_PACKS: packing.missing,
            routes.FILES: giving.files, routes.FILE: giving.file, routes.CHECKPOINTS: giving.checkpoints,
            routes.ONE_PACK: giving.pack, routes.PACK_UPLOADED: packing.position, routes.PACK_UPLOAD: packing.upload,
        }  # fmt: skip

    def _route(self, described: Described, endpoint: Endpoint) -> Route:
        guarded = self._guard.around(endpoint, described.scope, described.path)
        return Route(described.path, guarded, methods=[described.method])

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._indexer.start()
        yield
        await asyncio.to_thread(self.close)  # here, and not after the server: a signal may leave no time for more

    async def health(self, _request: Request) -> Response:
        return answer({"status": "ok"})

    async def prometheus(self, _request: Request) -> Response:
        return Response(self.metrics.text(self.intake), media_type=TYPE)

    async def openapi(self, _request: Request) -> Response:
        return answer(document(self.endpoints(), version("relive")))
