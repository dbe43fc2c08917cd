"""Endpoints that compare runs (leaderboard, rank skew, side by side), and those of the model registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from relive.query import MAX_CELL_CHARS, cell_chars, cut_cell
from relive.query.compare import LeaderboardTerms, SkewRule, build_leaderboard, check_rule, compare_runs, rank_skew
from relive.server.endpoints.ingest import run_of
from relive.server.endpoints.runs import MAX_WORD_CHARS, query_int, query_text
from relive.server.http import HttpError, compact_response, decode_json_body, json_bytes_response, lease_of
from relive.server.questions import ReaderPool
from relive.store.catalog import Index
from relive.store.registry import Model, Promotion, Registry, model_registry, promote

MAX_COMPARED = 20
MAX_LONG_CHARS = 2_000  # of a condition, or of a list of runs, which may be given by name
MAX_ROWS = 10_000
MAX_PAGE = 1_000
MAX_NEWEST = 100  # versions of each model in the list of models; args and values of each version
MAX_STEPS = 1_000_000
MAX_SKEW_STEPS = 100_000  # at a time
MAX_REGISTRY_BODY = 1 << 20
_SEE = "see /api/openapi.json for the expected body"


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

    def __init__(self, readers: ReaderPool) -> None:
        self._readers = readers

    async def leaderboard(self, request: Request) -> Response:
        """Returns runs ranked by a metric, in groups of comparable runs."""
        metric = query_text(request, "metric")
        if not metric:
            raise HttpError(422, "the parameter metric is missing; add it, as in ?metric=val_acc")
        return await self._answer(request, build_leaderboard, metric, _parse_terms(request))

    async def skew(self, request: Request) -> Response:
        """Returns rank 0 and the mean over all ranks, step by step."""
        run, name = run_of(request), query_text(request, "name")
        if not name:
            raise HttpError(422, "the parameter name is missing; add it, as in ?name=loss")
        limit, offset = (
            query_int(request, "limit", MAX_SKEW_STEPS, MAX_SKEW_STEPS),
            query_int(request, "offset", 0, 10**9),
        )
        return await self._answer(request, _page_of_skew, run, name, offset, limit)

    async def alert(self, request: Request) -> Response:
        """Returns whether the skew of a name exceeds a bound for a number of consecutive steps."""
        run, steps = run_of(request), query_int(request, "steps", 1, MAX_STEPS)
        rule = SkewRule.parse(f"{query_text(request, 'name')}>{query_text(request, 'above')}", steps)
        return await self._answer(request, check_rule, run, rule)

    async def compare(self, request: Request) -> Response:
        """Returns several runs side by side; if they have more than a page of args or values, what differs first."""
        runs = [word for word in query_text(request, "runs", MAX_LONG_CHARS).split(",") if word]
        if not 2 <= len(runs) <= MAX_COMPARED:
            raise HttpError(422, f"the parameter runs must name 2 to {MAX_COMPARED} runs; write ?runs=1f2e,77ab")
        return await self._answer(request, _page_of_comparison, runs, *_page_of(request))

    async def models(self, request: Request) -> Response:
        """Returns models with their newest versions and their aliases."""
        versions = query_int(request, "versions", MAX_NEWEST, MAX_NEWEST)
        return await self._answer(request, _list_models, *_page_of(request), versions)

    async def model(self, request: Request) -> Response:
        """Returns one model with its versions and its history, a page of each."""
        return await self._answer(request, _describe_model, request.path_params["model"], *_page_of(request))

    async def version(self, request: Request) -> Response:
        """Returns the version for a number or an alias, with the artifact to download."""
        return await self._answer(request, _describe_version, request.path_params["model"], _version_word(request))

    async def retire(self, request: Request) -> Response:
        """Retires a version."""
        return await self._change(request, _retire, _version_word(request))

    async def promote(self, request: Request) -> Response:
        """Makes a run the next version of a model."""
        body = await decode_json_body(request, _PromoteBody, MAX_REGISTRY_BODY, _SEE)
        return await self._change(request, _promote, body, status=201)

    async def point(self, request: Request) -> Response:
        """Points an alias to a version."""
        body = await decode_json_body(request, _PointBody, MAX_REGISTRY_BODY, _SEE)
        return await self._change(request, _point, request.path_params["alias"], body.version)

    async def roll_back(self, request: Request) -> Response:
        """Points an alias to its previous version."""
        return await self._change(request, _roll_back, request.path_params["alias"])

    async def _answer(self, request: Request, function: Callable[..., Any], *args: Any) -> Response:
        return compact_response(request, await self._readers.ask(request, function, *args))

    async def _change(self, request: Request, function: Callable[..., Any], *args: Any, status: int = 200) -> Response:
        """Changes a model in the name of the token."""
        by, model = lease_of(request).name or None, request.path_params["model"]
        body = await self._readers.ask(request, function, by, model, *args, finishes=True)
        return json_bytes_response(body, status)


def _page_of(request: Request) -> tuple[int, int]:
    """Returns offset and limit of a request."""
    return query_int(request, "offset", 0, 10**9), query_int(request, "limit", MAX_PAGE, MAX_PAGE)


def _page_of_comparison(index: Index, runs: list[str], offset: int, limit: int) -> dict[str, Any]:
    found = compare_runs(index, runs)
    pages = {}
    for part in ("args", "metrics"):
        rows = found[part]
        if len(rows) > limit:
            rows = sorted(rows, key=lambda row: not row["differs"])
        chars = cell_chars(min(len(rows), limit), len(runs))
        pages[part] = [
            {**row, "values": [_cut_value(value, chars, is_summary=part == "metrics") for value in row["values"]]}
            for row in rows[offset : offset + limit]
        ]
    return {**found, **pages, "totals": {part: len(found[part]) for part in pages}}


def _cut_value(value: Any, chars: int, *, is_summary: bool) -> Any:
    if is_summary and value is not None:
        return {**value, "last": cut_cell(value["last"], chars)[0]}
    return cut_cell(value, chars)[0]


def _version_word(request: Request) -> str:
    return str(request.path_params["version"])


def _page_of_skew(index: Index, run: str, name: str, offset: int, limit: int) -> dict[str, Any]:
    found = rank_skew(index, run, name)
    steps = found["steps"]
    return {**found, "steps": steps[offset : offset + limit], "total": len(steps)}


# --- questions about models, answered by a reader ---------------------------------------------------------------------


def _list_models(index: Index, offset: int, limit: int, versions: int) -> dict[str, Any]:
    models = Registry(index.home).models()
    return {
        "models": [_page_of_model(model, 0, versions) for model in models[offset : offset + limit]],
        "total": len(models),
    }


def _describe_model(index: Index, name: str, offset: int, limit: int) -> dict[str, Any]:
    model = Registry(index.home).model(name)
    history = model_registry.history_to_json(model)
    end = max(len(history) - offset, 0)
    return {
        **_page_of_model(model, offset, limit),
        "history": history[max(end - limit, 0) : end],
        "history_total": len(history),
    }


def _page_of_model(model: Model, offset: int, limit: int) -> dict[str, Any]:
    """Returns a model with some of its versions, newest first; without packages, which are told of one version."""
    shown = model.versions[::-1][offset : offset + limit]
    return {
        "name": model.name, "aliases": model.aliases, "total": len(model.versions),
        "versions": [_short_version(model_registry.version_to_json(one, model)) for one in shown],
    }  # fmt: skip


def _short_version(version: dict[str, Any]) -> dict[str, Any]:
    environment = {key: value for key, value in version["environment"].items() if key not in ("packages", "variables")}
    short = {
        key: {name: cut_cell(value, MAX_CELL_CHARS)[0] if key == "args" else value for name, value in some}
        for key in ("args", "metrics")
        for some in [list(version[key].items())[:MAX_NEWEST]]
    }
    return {**version, **short, "environment": environment, "note": cut_cell(version["note"], MAX_CELL_CHARS)[0]}


def _describe_version(index: Index, name: str, word: str) -> dict[str, Any]:
    registry = Registry(index.home)
    found = registry.find(f"{name}@{word}")
    return {**model_registry.version_to_json(found, registry.model(name)), "artifact": found.artifact}


def _retire(index: Index, by: str | None, name: str, word: str) -> dict[str, Any]:
    registry = Registry(index.home, by)
    retired = registry.retire(name, registry.find(f"{name}@{word}").version)
    return model_registry.version_to_json(retired, registry.model(name))


def _promote(index: Index, by: str | None, name: str, body: _PromoteBody) -> dict[str, Any]:
    version = promote(index, Promotion(body.run, name, body.artifact, body.aliases, body.note, body.force), by=by)
    return model_registry.version_to_json(version, Registry(index.home).model(name))


def _point(index: Index, by: str | None, name: str, alias: str, version: int) -> dict[str, Any]:
    pointed = Registry(index.home, by).point(name, alias, version)
    return model_registry.version_to_json(pointed, Registry(index.home).model(name))


def _roll_back(index: Index, by: str | None, name: str, alias: str) -> dict[str, Any]:
    version = Registry(index.home, by).roll_back(name, alias)
    return model_registry.version_to_json(version, Registry(index.home).model(name))


def _parse_terms(request: Request) -> LeaderboardTerms:
    """Returns the leaderboard terms from the query parameters, with defaults for absent ones."""
    terms: dict[str, Any] = {
        name: value
        for name in ("by", "order", "where", "ranks")
        if (value := query_text(request, name, MAX_LONG_CHARS if name == "where" else MAX_WORD_CHARS) or None)
    }
    for name in ("group", "columns", "guard"):
        if name in request.query_params:
            terms[name] = tuple(word for word in query_text(request, name).split(",") if word)
    if "k" in request.query_params:
        terms["k"] = query_int(request, "k", 10, MAX_ROWS)
    terms["limit"] = query_int(request, "limit", 0, MAX_ROWS)
    return LeaderboardTerms.of(across_data=request.query_params.get("across_data") == "1", **terms)
