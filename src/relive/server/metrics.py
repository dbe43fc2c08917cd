"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter

from relive.store.sync import Intake

_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters since the server started."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._started = time.time()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0

    def count(self, route: str, method: str, status: int, took_s: float) -> None:
        self._requests[route, method, status] += 1
        self._buckets[next((bound for bound in _BOUNDS_S if took_s <= bound), float("inf"))] += 1
        self._seconds += took_s

    def text(self, intake: Intake) -> str:
        """All of it, in the text format."""
        lines: list[str] = []
        _add(lines, "relive_requests_total", "counter", "Requests by route, method and status.", [
            (f'{{route="{route}",method="{method}",status="{status}"}}', count)
            for (route, method, status), count in sorted(self._requests.items())
        ])  # fmt: skip
        self._add_times(lines)
        for name, kind, about, value in (
            ("relive_requests_in_flight", "gauge", "Requests being answered.", self.in_flight),
            ("relive_ranges_total", "counter", "Ranges of journals that were taken.", intake.ranges),
            ("relive_range_bytes_total", "counter", "New bytes of journals that were taken.", intake.taken_bytes),
            ("relive_commits_total", "counter", "Batches that were forced to disk together.", intake.batches),
            ("relive_store_failures_total", "counter", "Ranges that the disk did not take.", intake.failures),
            ("relive_pending_bytes", "gauge", "Bytes that wait for the disk.", intake.pending_bytes),
            ("process_resident_memory_bytes", "gauge", "Memory in use.", resident_bytes()),
            ("process_start_time_seconds", "gauge", "When the server started.", self._started),
        ):
            _add(lines, name, kind, about, [("", value)])
        return "\n".join(lines) + "\n"

    def _add_times(self, lines: list[str]) -> None:
        total = 0
        rows: list[tuple[str, float]] = []
        for bound in (*_BOUNDS_S, float("inf")):
            total += self._buckets[bound]
            rows.append((f'_bucket{{le="{"+Inf" if bound == float("inf") else bound}"}}', total))
        rows += [("_sum", self._seconds), ("_count", total)]
        _add(lines, "relive_request_seconds", "histogram", "How long answers took.", rows)


def _add(lines: list[str], name: str, kind: str, about: str, rows: list[tuple[str, float]]) -> None:
    lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{labels} {value}" for labels, value in rows]


def resident_bytes() -> int:
    """Memory that this process has now; where that can't be told, the most that it had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
