"""Endpoints that compare runs (leaderboard, rank skew, side by side), and those of the model registry."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from relive.query.compare import LeaderboardTerms, SkewRule, build_leaderboard, check_rule, compare_runs, rank_skew
from relive.server.endpoints.ingest import run_of
from relive.server.endpoints.runs import query_int, query_text
from relive.server.http import HttpError, Reader, json_response, read_body
from relive.store.catalog import Index
from relive.store.registry import Promotion, Registry, model_registry, promote

MAX_COMPARED = 20
MAX_ROWS = 10_000
MAX_STEPS = 1_000_000
T = TypeVar("T")


class _PromoteBody(msgspec.Struct, forbid_unknown_fields=True):
    run: str
    artifact: str | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    force: bool = False


class _PointBody(msgspec.Struct, forbid_unknown_fields=True):
    version: int


class ComparisonEndpoints:
    """Endpoints of comparisons and the registry; each calls the same function as the command line."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def leaderboard(self, request: Request) -> Response:
        """Returns runs ranked by a metric, in groups of comparable runs."""
        metric = query_text(request, "metric")
        if not metric:
            raise HttpError(422, "the parameter metric is missing; add it, as in ?metric=val_acc")
        terms = _parse_terms(request)
        return json_response(await self._reader.ask(lambda index: build_leaderboard(index, metric, terms)))

    async def skew(self, request: Request) -> Response:
        """Returns rank 0 and the mean over all ranks, step by step."""
        run, name = run_of(request), query_text(request, "name")
        if not name:
            raise HttpError(422, "the parameter name is missing; add it, as in ?name=loss")
        return json_response(await self._reader.ask(lambda index: rank_skew(index, run, name)))

    async def alert(self, request: Request) -> Response:
        """Returns whether the skew of a name exceeds a bound for a number of consecutive steps."""
        run, steps = run_of(request), query_int(request, "steps", 1, MAX_STEPS)
        rule = SkewRule.parse(f"{query_text(request, 'name')}>{query_text(request, 'above')}", steps)
        return json_response(await self._reader.ask(lambda index: check_rule(index, run, rule)))

    async def compare(self, request: Request) -> Response:
        """Returns several runs side by side."""
        runs = [word for word in query_text(request, "runs").split(",") if word]
        if not 2 <= len(runs) <= MAX_COMPARED:
            raise HttpError(422, f"the parameter runs must name 2 to {MAX_COMPARED} runs; write ?runs=1f2e,77ab")
        return json_response(await self._reader.ask(lambda index: compare_runs(index, runs)))

    async def models(self, _request: Request) -> Response:
        """Returns all models, with their versions and aliases."""
        found = await self._reader.ask(
            lambda index: [model_registry.model_to_json(model) for model in Registry(index.home).models()]
        )
        return json_response({"models": found})

    async def model(self, request: Request) -> Response:
        """Returns one model with its history."""
        name = request.path_params["model"]

        def ask(index: Index) -> dict[str, Any]:
            model = Registry(index.home).model(name)
            return {**model_registry.model_to_json(model), "history": model_registry.history_to_json(model)}

        return json_response(await self._reader.ask(ask))

    async def version(self, request: Request) -> Response:
        """Returns the version for a number or an alias, with the artifact to download."""
        name, word = request.path_params["model"], request.path_params["version"]

        def ask(index: Index) -> dict[str, Any]:
            registry = Registry(index.home)
            found = registry.find(f"{name}@{word}")
            return {**model_registry.version_to_json(found, registry.model(name)), "artifact": found.artifact}

        return json_response(await self._reader.ask(ask))

    async def retire(self, request: Request) -> Response:
        """Retires a version."""
        name, word = request.path_params["model"], request.path_params["version"]

        def ask(index: Index) -> dict[str, Any]:
            registry = Registry(index.home)
            retired = registry.retire(name, registry.find(f"{name}@{word}").version)
            return model_registry.version_to_json(retired, registry.model(name))

        return json_response(await self._reader.ask(ask))

    async def promote(self, request: Request) -> Response:
        """Makes a run the next version of a model."""
        name, body = request.path_params["model"], await _decode_body(request, _PromoteBody)
        promotion = Promotion(body.run, name, body.artifact, body.aliases, body.note, body.force)

        def ask(index: Index) -> dict[str, Any]:
            version = promote(index, promotion)
            return model_registry.version_to_json(version, Registry(index.home).model(name))

        return json_response(await self._reader.ask(ask), 201)

    async def point(self, request: Request) -> Response:
        """Points an alias to a version."""
        name, alias = request.path_params["model"], request.path_params["alias"]
        body = await _decode_body(request, _PointBody)

        def ask(index: Index) -> dict[str, Any]:
            version = Registry(index.home).point(name, alias, body.version)
            return model_registry.version_to_json(version, Registry(index.home).model(name))

        return json_response(await self._reader.ask(ask))

    async def roll_back(self, request: Request) -> Response:
        """Points an alias to its previous version."""
        name, alias = request.path_params["model"], request.path_params["alias"]

        def ask(index: Index) -> dict[str, Any]:
            version = Registry(index.home).roll_back(name, alias)
            return model_registry.version_to_json(version, Registry(index.home).model(name))

        return json_response(await self._reader.ask(ask))


def _parse_terms(request: Request) -> LeaderboardTerms:
    """Returns the leaderboard terms from the query parameters, with defaults for absent ones."""
    terms: dict[str, Any] = {
        name: value for name in ("by", "order", "where", "ranks") if (value := query_text(request, name) or None)
    }
    for name in ("group", "columns", "guard"):
        if name in request.query_params:
            terms[name] = tuple(word for word in query_text(request, name).split(",") if word)
    if "k" in request.query_params:
        terms["k"] = query_int(request, "k", 10, MAX_ROWS)
    terms["limit"] = query_int(request, "limit", 0, MAX_ROWS)
    return LeaderboardTerms.of(across_data=request.query_params.get("across_data") == "1", **terms)


async def _decode_body(request: Request, shape: type[T]) -> T:
    raw = await read_body(request, 1 << 20)
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise HttpError(422, f"{error}; see /api/openapi.json for the expected body") from error
