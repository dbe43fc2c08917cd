"""The metrics on the wire: names, types, labels and buckets, which dashboards and alerts refer to."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from relive.server.metrics import Metrics

INTAKE: Any = SimpleNamespace(ranges=5, taken_bytes=10**10, batches=3, failures=0, pending_bytes=7)
BUCKETS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"]
TYPES = """
relive_requests_total counter
relive_request_seconds histogram
relive_requests_in_flight gauge
relive_ranges_total counter
relive_range_bytes_total counter
relive_commits_total counter
relive_store_failures_total counter
relive_pending_bytes gauge
process_resident_memory_bytes gauge
process_start_time_seconds gauge
""".strip().splitlines()


def samples(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_each_metric_has_its_name_type_labels_and_value():
    metrics = Metrics(INTAKE, lambda: 2)
    for route, method, status, took_s in (
        ("/api/runs", "GET", 200, 0.003), ("/api/runs", "GET", 200, 0.3), ('/"\\', "POST", 404, 20.0)
    ):  # fmt: skip
        metrics.count(route, method, status, took_s)
    text = metrics.text()
    found = samples(text)

    assert re.findall(r"^# TYPE (.*)$", text.decode(), re.MULTILINE) == TYPES
    assert found["relive_requests_total"] == [
        ({"route": '/"\\', "method": "POST", "status": "404"}, 1),
        ({"route": "/api/runs", "method": "GET", "status": "200"}, 2),
    ]
    assert found["relive_request_seconds_bucket"] == [
        ({"le": bound}, count) for bound, count in zip(BUCKETS, [1] * 6 + [2] * 5 + [3], strict=True)
    ]
    assert found["relive_request_seconds_count"] == [({}, 3)]
    assert found["relive_request_seconds_sum"] == [({}, 20.303)]
    assert found["relive_requests_in_flight"] == [({}, 2)]
    assert found["relive_range_bytes_total"] == [({}, 10**10)]
    assert found["relive_pending_bytes"] == [({}, 7)]
    assert not [name for name in found if name.endswith("_created")]


def test_servers_in_one_process_count_apart():
    first, second = Metrics(INTAKE), Metrics(INTAKE)
    first.count("/api/runs", "GET", 200, 0.1)

    assert samples(first.text())["relive_request_seconds_count"] == [({}, 1)]
    assert samples(second.text())["relive_request_seconds_count"] == [({}, 0)]
