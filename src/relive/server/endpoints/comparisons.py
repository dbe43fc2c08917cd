"""What compares runs, and what was chosen from them: leaderboard, ranks apart, side by side, and the registry."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from relive.query.compare import LeaderboardTerms, Rule, build_leaderboard, compare, skew, watched
from relive.server.endpoints.ingest import run_of
from relive.server.endpoints.runs import text, whole
from relive.server.http import Problem, Reader, answer, read_body
from relive.store.catalog import Index
from relive.store.registry import Promotion, Registry, promote
from relive.store.registry import model_registry as words

MAX_COMPARED = 20
MAX_ROWS = 10_000
MAX_STEPS = 1_000_000
T = TypeVar("T")


class _Promote(msgspec.Struct, forbid_unknown_fields=True):
    run: str
    artifact: str | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    force: bool = False


class _Point(msgspec.Struct, forbid_unknown_fields=True):
    version: int


class ComparisonEndpoints:
    """The routes of the leaderboard and the registry. Each is one call to what the command line calls."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def leaderboard(self, request: Request) -> Response:
        """Runs ranked by a metric, in groups that may stand side by side."""
        metric = text(request, "metric")
        if not metric:
            raise Problem(422, "which metric? Ask like ?metric=val_acc")
        terms = _terms(request)
        return answer(await self._reader.ask(lambda index: build_leaderboard(index, metric, terms)))

    async def skew(self, request: Request) -> Response:
        """Rank 0 and the mean over all ranks, step by step."""
        run, name = run_of(request), text(request, "name")
        if not name:
            raise Problem(422, "of which name? Ask like ?name=loss")
        return answer(await self._reader.ask(lambda index: skew(index, run, name)))

    async def alert(self, request: Request) -> Response:
        """Is the skew of a name above a bound, for so many steps on end?"""
        run, steps = run_of(request), whole(request, "steps", 1, MAX_STEPS)
        rule = Rule.parse(f"{text(request, 'name')}>{text(request, 'above')}", steps)
        return answer(await self._reader.ask(lambda index: watched(index, run, rule)))

    async def compare(self, request: Request) -> Response:
        """Runs side by side."""
        runs = [word for word in text(request, "runs").split(",") if word]
        if not 2 <= len(runs) <= MAX_COMPARED:
            raise Problem(422, f"which runs? Ask for 2 to {MAX_COMPARED}, like ?runs=1f2e,77ab")
        return answer(await self._reader.ask(lambda index: compare(index, runs)))

    async def models(self, _request: Request) -> Response:
        """All models, with their versions and aliases."""
        found = await self._reader.ask(lambda index: [words.told(model) for model in Registry(index.home).models()])
        return answer({"models": found})

    async def model(self, request: Request) -> Response:
        """One model, and what happened to it."""
        name = request.path_params["model"]

        def ask(index: Index) -> dict[str, Any]:
            model = Registry(index.home).model(name)
            return {**words.told(model), "history": words.history_told(model)}

        return answer(await self._reader.ask(ask))

    async def version(self, request: Request) -> Response:
        """The version that a number or an alias means, with what is needed to download it."""
        name, word = request.path_params["model"], request.path_params["version"]

        def ask(index: Index) -> dict[str, Any]:
            registry = Registry(index.home)
            found = registry.find(f"{name}@{word}")
            return {**words.version_told(found, registry.model(name)), "artifact": found.artifact}

        return answer(await self._reader.ask(ask))

    async def retire(self, request: Request) -> Response:
        """Give a version up."""
        name, word = request.path_params["model"], request.path_params["version"]

        def ask(index: Index) -> dict[str, Any]:
            registry = Registry(index.home)
            gone = registry.retire(name, registry.find(f"{name}@{word}").version)
            return words.version_told(gone, registry.model(name))

        return answer(await self._reader.ask(ask))

    async def promote(self, request: Request) -> Response:
        """Make a run the next version of a model."""
        name, asked = request.path_params["model"], await _body(request, _Promote)
        promotion = Promotion(asked.run, name, asked.artifact, asked.aliases, asked.note, asked.force)

        def ask(index: Index) -> dict[str, Any]:
            made = promote(index, promotion)
            return words.version_told(made, Registry(index.home).model(name))

        return answer(await self._reader.ask(ask), 201)

    async def point(self, request: Request) -> Response:
        """Let an alias point to a version."""
        name, alias, asked = request.path_params["model"], request.path_params["alias"], await _body(request, _Point)

        def ask(index: Index) -> dict[str, Any]:
            made = Registry(index.home).point(name, alias, asked.version)
            return words.version_told(made, Registry(index.home).model(name))

        return answer(await self._reader.ask(ask))

    async def roll_back(self, request: Request) -> Response:
        """Let an alias point to where it pointed before."""
        name, alias = request.path_params["model"], request.path_params["alias"]

        def ask(index: Index) -> dict[str, Any]:
            made = Registry(index.home).roll_back(name, alias)
            return words.version_told(made, Registry(index.home).model(name))

        return answer(await self._reader.ask(ask))


def _terms(request: Request) -> LeaderboardTerms:
    """How the board is made, from the query; what is absent has its default."""
    given: dict[str, Any] = {
        name: value for name in ("by", "order", "where", "ranks") if (value := text(request, name) or None)
    }
    for name in ("group", "columns", "guard"):
        if name in request.query_params:
            given[name] = tuple(word for word in text(request, name).split(",") if word)
    if "k" in request.query_params:
        given["k"] = whole(request, "k", 10, MAX_ROWS)
    given["limit"] = whole(request, "limit", 0, MAX_ROWS)
    return LeaderboardTerms.of(across_data=request.query_params.get("across_data") == "1", **given)


async def _body(request: Request, shape: type[T]) -> T:
    raw = await read_body(request, 1 << 20)
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(422, f"{error}; see /api/openapi.json for what is expected") from error
