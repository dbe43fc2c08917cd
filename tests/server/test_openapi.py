"""The API is what its document says: schemathesis asks for everything that it allows, and for what it does not."""

from __future__ import annotations

import http.client
import json
import urllib.request

import pytest
from hypothesis import HealthCheck, given, settings

from relive.server import ask_routes, page_routes, routes, run_routes
from relive.server.openapi import RouteSpec, openapi_document

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed; pip install schemathesis")

DESCRIBED = [
    value
    for room in (routes, page_routes, run_routes, ask_routes)
    for value in vars(room).values()
    if isinstance(value, RouteSpec)
]
SCHEMA = schemathesis.openapi.from_dict(openapi_document(DESCRIBED, "0"))
# A stream of events has no end; tests/server/endpoints/test_page_routes.py reads one.
OPERATIONS = [one for found in SCHEMA.get_all_operations() if (one := found.ok()).path != "/api/events"]
WANTED = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
CHECKS = [check for check in schemathesis.checks.CHECKS.get_all() if check.__name__ in WANTED]


CASES = [
    pytest.param(operation, mode, id=f"{operation.label} {mode.value}")
    for operation in OPERATIONS
    for mode in schemathesis.GenerationMode
    if mode is schemathesis.GenerationMode.POSITIVE or operation.query or operation.path_parameters or operation.body
]


def ask_everything(operation, mode, server, examples: int) -> None:
    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def ask(case) -> None:
        answer = case.call(base_url=server.url, timeout=20)
        case.validate_response(answer, checks=CHECKS)

    assert len(CHECKS) == len(WANTED)
    ask()


@pytest.mark.long
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_the_api_is_what_its_document_says(operation, mode, shared):
    ask_everything(operation, mode, shared, examples=3)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_the_api_is_what_its_document_says_however_often_it_is_asked(operation, mode, shared):
    ask_everything(operation, mode, shared, examples=60)


def test_every_route_of_the_document_is_explained(shared):
    from pathlib import Path

    with urllib.request.urlopen(f"{shared.url}/api/openapi.json", timeout=10) as answer:
        paths = json.load(answer)["paths"]
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()

    for path, methods in paths.items():
        for method in methods:
            assert f"## {method.upper()} {path}\n" in page


def test_an_unknown_route_says_so(shared):
    connection = http.client.HTTPConnection("127.0.0.1", shared.port)
    connection.request("GET", "/api/nothing")
    answer = connection.getresponse()

    assert answer.status == 404
    assert "openapi" in json.load(answer)["error"]
    connection.close()
