"""The Starlette application: which endpoint serves each route."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from relive.server import ask_routes, page_routes, routes, run_routes
from relive.server.access import LocalAccess
from relive.server.authorization import (
    Authorization,
    handle_failure,
    handle_not_found,
    handle_wrong_method,
    token_of,
)
from relive.server.endpoints import (
    ComparisonEndpoints,
    ConsoleEndpoints,
    DownloadEndpoints,
    IngestEndpoints,
    PackEndpoints,
    RunEndpoints,
    ScrubEndpoints,
    SessionEndpoint,
)
from relive.server.endpoints.ask import AskEndpoints, Asker
from relive.server.endpoints.page import CurveEndpoints, EventEndpoints, SharedAnswers, TableEndpoints
from relive.server.endpoints.run import ArtifactEndpoints, MediaEndpoints, RunPageEndpoints
from relive.server.http import Admission, compact_response, json_response, refuse_unknown
from relive.server.metrics import TYPE, Metrics
from relive.server.openapi import RouteSpec, openapi_document
from relive.server.questions import ChangeWatcher, Indexer, QuestionLimits, ReaderPool, RecordedHere
from relive.server.tokens import Tokens
from relive.server.web_pages import WebPages
from relive.store import Home
from relive.store.chunks import Chunks, Packs
from relive.store.console import ConsoleIntake
from relive.store.sync import ChunkUploads, Intake, PackUploads

INDEX_MEMORY = 4  # times the memory of a question is what the index may take: it reads whole runs
Endpoint = Callable[[Request], Any]


class Service:
    """A store with everything that serves it: endpoints, authorization, metrics, and the index thread.

    With `local`, it shows the home of its one user beside everything that records into it, and takes nothing in.
    """

    def __init__(
        self, home: Home, *, is_open: bool = False, limits: QuestionLimits = QuestionLimits(),  # noqa: B008 - frozen
        local: LocalAccess | None = None, asker: Asker | None = None,
    ) -> None:  # fmt: skip
        self.intake = Intake(home) if local is None else RecordedHere(home)  # an Intake refuses a second server
        self._admission = Admission()
        self.metrics = Metrics(self.intake, lambda: self._admission.in_flight)
        chunks = Chunks(home.chunks)
        self._readers = ReaderPool(home, limits)
        self._indexer = Indexer(home, self.intake, INDEX_MEMORY * limits.memory_bytes)
        self._authorization = Authorization(
            Tokens(home.path), self.metrics, self._admission, is_open=is_open, local=local
        )
        self._session = SessionEndpoint(str(home.path), token_of, can_ask=asker is not None)
        self._asker, self._ask = asker, AskEndpoints(asker, token_of)
        self._downloads = DownloadEndpoints(home, self._readers)
        self._writing = self._writing_endpoints(home, chunks)
        self._run_page = RunPageEndpoints(self._readers, is_local=local is not None)
        self._artifacts = ArtifactEndpoints(self._readers, chunks)
        self._runs, self._comparisons = RunEndpoints(self._readers, chunks), ComparisonEndpoints(self._readers)

        self._watcher = ChangeWatcher(home, limits.memory_bytes, None if asker is None else lambda: asker.changes)

    def app(self) -> Starlette:
        pages = WebPages(self._authorization)
        api_routes = [self._route(spec, endpoint) for spec, endpoint in self.endpoints().items()]
        page_routes = [Route(path, self._authorization.protect(endpoint, None, path), methods=[method])
                 for method, path, endpoint in pages.endpoints()]  # fmt: skip
        return Starlette(
            routes=[*api_routes, *page_routes],
            lifespan=self._lifespan,
            exception_handlers={404: handle_not_found, 405: handle_wrong_method, 500: handle_failure},
        )

    def close(self) -> None:
        self._watcher.close()
        if self._asker is not None:
            self._asker.close()
        self._indexer.close()
        self._readers.close()
        self._admission.close()
        self._authorization.close()
        self.intake.close()

    def endpoints(self) -> dict[RouteSpec, Endpoint]:
        """Returns the endpoint of each route of the API."""
        downloads, runs, comparisons = self._downloads, self._runs, self._comparisons
        return {  # routes match in this order, so fixed paths come before parameters
            routes.HEALTH: self.health, routes.METRICS: self.prometheus, routes.OPENAPI: self.openapi,
            routes.SESSION: self._session.session,
            routes.RUNS: runs.runs, routes.ONE_RUN: runs.run, routes.SERIES: runs.series, routes.SKEW: comparisons.skew,
            routes.ALERT: comparisons.alert, routes.COMPARE: comparisons.compare,
            routes.LEADERBOARD: comparisons.leaderboard, routes.MODELS: comparisons.models,
            routes.ONE_MODEL: comparisons.model, routes.PROMOTE: comparisons.promote,
            routes.ONE_VERSION: comparisons.version, routes.RETIRE: comparisons.retire, routes.POINT: comparisons.point,
            routes.ROLL_BACK: comparisons.roll_back, routes.CHUNK_BYTES: runs.chunk,
            routes.FILES: downloads.files, routes.FILE: downloads.file, routes.CHECKPOINTS: downloads.checkpoints,
            routes.ONE_PACK: downloads.pack, **self._run_page_endpoints(), **self._page_endpoints(),
            **self._ask_endpoints(), **self._writing,
        }  # fmt: skip

    def _page_endpoints(self) -> dict[RouteSpec, Endpoint]:
        answers = SharedAnswers(self._readers)
        tables = TableEndpoints(answers)
        return {
            page_routes.TABLE: tables.table, page_routes.COLUMNS: tables.columns,
            page_routes.CURVES: CurveEndpoints(answers).curves,
            page_routes.EVENTS: EventEndpoints(self._watcher).events,
        }  # fmt: skip

    def _run_page_endpoints(self) -> dict[RouteSpec, Endpoint]:
        page, media = self._run_page, MediaEndpoints(self._readers)
        return {
            run_routes.CONFIG: page.config, run_routes.CODE: page.code, run_routes.CODE_DIFF: page.code_diff,
            run_routes.DATA: page.data, run_routes.ENVIRONMENT: page.environment, run_routes.MEMO: page.memo,
            run_routes.CHECKPOINT_LIST: page.checkpoint_list, run_routes.COMMANDS: page.commands,
            run_routes.CONSOLE: page.console, run_routes.MEDIA: media.media,
            run_routes.HISTOGRAMS: media.histograms, run_routes.IMAGE: media.image,
            run_routes.ARTIFACTS: page.artifacts, run_routes.ARTIFACT: self._artifacts.artifact,
        }  # fmt: skip

    def _ask_endpoints(self) -> dict[RouteSpec, Endpoint]:
        ask = self._ask
        return {
            ask_routes.ASK_PLAN: ask.plan, ask_routes.ASK_START: ask.start, ask_routes.QUESTIONS: ask.questions,
            ask_routes.QUESTION: ask.question, ask_routes.STOP_QUESTION: ask.stop,
        }  # fmt: skip

    def _writing_endpoints(self, home: Home, chunks: Chunks) -> dict[RouteSpec, Endpoint]:
        """Returns the endpoints that take runs in; none for a home into which its runs are recorded directly."""
        if not isinstance(self.intake, Intake):
            return {}
        ingest = IngestEndpoints(self.intake, chunks, ChunkUploads(home.path / "incoming", chunks))
        packs = PackEndpoints(PackUploads(home.path / "incoming", Packs(home.packs)))
        scrubbing = ScrubEndpoints(self.intake, self._readers, home.path, self._indexer.rebuild)
        console = ConsoleEndpoints(ConsoleIntake(home, self.intake.is_paused), home.path)
        return {
            routes.SCRUB: scrubbing.scrub, routes.CONSOLE_HELD: console.held, routes.CONSOLE_PIECE: console.put,
            routes.POSITION: ingest.position, routes.APPEND: ingest.append, routes.MISSING: ingest.missing,
            routes.UPLOADED: ingest.upload_position, routes.UPLOAD: ingest.upload, routes.MISSING_PACKS: packs.missing,
            routes.PACK_UPLOADED: packs.position, routes.PACK_UPLOAD: packs.upload,
        }  # fmt: skip

    def _route(self, spec: RouteSpec, endpoint: Endpoint) -> Route:
        async def answer(request: Request) -> Any:
            refuse_unknown(request, spec.query)
            return await endpoint(request)

        guarded = self._authorization.protect(answer, spec.scope, spec.path)
        return Route(spec.path, guarded, methods=[spec.method])

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(self._readers.warm_up)
        self._indexer.start()
        yield
        await asyncio.to_thread(self.close)  # here, because a signal may end the process right after shutdown

    async def health(self, _request: Request) -> Response:
        return json_response({"status": "ok"})

    async def prometheus(self, _request: Request) -> Response:
        return Response(self.metrics.text(), media_type=TYPE)

    async def openapi(self, request: Request) -> Response:
        document = openapi_document(self.endpoints(), version("relive"))
        return compact_response(request, msgspec.json.encode(document))
