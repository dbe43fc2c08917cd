"""Endpoints of the table of runs, and of the names of its columns."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from relive.errors import QueryError
from relive.query.compare import RunTable, TableSort, TableTerms
from relive.query.series import wire_value
from relive.server.endpoints.page.shared_answers import SharedAnswers
from relive.server.endpoints.runs import query_int, query_text
from relive.server.http import HttpError, compact_response, decode_json_body
from relive.store.catalog import Index

MAX_BODY = 1 << 20
MAX_ROWS = 1_000
MAX_FIRST = 1_000
_SEE = "see POST /api/table in /api/openapi.json for the expected body"
_PLACE = re.compile(r"\(line (\d+), column (\d+)\)")
_NAMED = re.compile(r"(?:no run has|there is no column) ['\"](.+?)['\"]")
_MEANT = re.compile(r"did you mean (\S+?)(?: or |\?)")
_REFUSED = b'{"error":'


class SortBody(msgspec.Struct, forbid_unknown_fields=True):
    """One column of the order."""

    column: str
    descending: bool = False


class TableBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /api/table."""

    where: str | None = None
    columns: list[str] | None = None
    sort: list[SortBody] = []
    group: list[str] = []
    offset: int = 0
    limit: int = 100
    runs: list[str] | None = None
    first: list[str] = []


class TableEndpoints:
    """Endpoints of tables."""

    def __init__(self, answers: SharedAnswers) -> None:
        self._answers = answers

    async def table(self, request: Request) -> Response:
        """Returns a page of the table of runs."""
        body = await decode_json_body(request, TableBody, MAX_BODY, _SEE)
        if not (0 <= body.limit <= MAX_ROWS and 0 <= body.offset <= 10**9):
            raise HttpError(422, f"limit is 0 to {MAX_ROWS}, offset is 0 or more; correct them")
        if len(body.columns or ()) > 200 or len(body.sort) > 5 or len(body.group) > 5 or len(body.where or "") > 2_000:
            raise HttpError(
                422, "at most 200 columns, 5 to sort and 5 to group by, 2000 characters of where; ask for less"
            )
        if len(body.first) > MAX_FIRST:
            raise HttpError(422, f"at most {MAX_FIRST} runs come first; name fewer")
        terms = TableTerms(
            body.where, None if body.columns is None else tuple(body.columns),
            tuple(TableSort(one.column, one.descending) for one in body.sort), tuple(body.group), body.offset,
            body.limit, None if body.runs is None else tuple(body.runs), tuple(body.first),
        )  # fmt: skip
        answer = await self._answers.ask(request, answer_table, terms)
        return compact_response(request, answer, 422 if answer.startswith(_REFUSED) else 200)

    async def columns(self, request: Request) -> Response:
        """Returns names of columns, for completion."""
        prefix, limit = query_text(request, "prefix"), query_int(request, "limit", 200, MAX_ROWS)
        return compact_response(request, await self._answers.ask(request, answer_columns, prefix, limit))


def answer_table(index: Index, terms: TableTerms) -> Any:
    """Answers a table; an error of the where clause with its place."""
    try:
        return wire_value(RunTable(index).answer(terms))
    except QueryError as error:
        return describe_error(str(error), terms.where or "")


def answer_columns(index: Index, prefix: str, limit: int) -> Any:
    return RunTable(index).column_names(prefix, limit)


def describe_error(message: str, where: str) -> dict[str, Any]:
    """Returns an error with the position and length of the wrong part of a where clause, if they are known."""
    position, length = None, 0
    place, named = _PLACE.search(message), _NAMED.search(message)
    if place is not None:
        lines = where.split("\n")
        position = sum(len(line) + 1 for line in lines[: int(place[1]) - 1]) + int(place[2]) - 1
        carets = re.search(r"\^+", message)
        length = len(carets.group()) if carets else 1
    elif named is not None and (at := where.lower().find(named[1].lower())) >= 0:
        position, length = at, len(named[1])
    meant = _MEANT.search(message)
    plain = re.sub(r"\n {4}[^\n]*\n {4}\s*\^+\n", "; ", message)
    return {"error": plain, "position": position, "length": length, "suggestion": meant[1] if meant else None}
