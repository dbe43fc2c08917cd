"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class IntakeCounts(Protocol):
    """What was taken in since the server started."""

    @property
    def ranges(self) -> int: ...
    @property
    def taken_bytes(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...


class Metrics(Collector):
    """Counters since the server started."""

    # Not the library's own counters: each of them adds a series `…_created`, unless that is switched off globally.
    def __init__(self, intake: IntakeCounts, in_flight: Callable[[], int] = lambda: 0) -> None:
        self._in_flight = in_flight
        self._intake = intake
        self._started = time.time()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self._registry = CollectorRegistry()  # the library's default one is shared by the whole process
        self._registry.register(self)

    def count(self, route: str, method: str, status: int, took_s: float) -> None:
        self._requests[route, method, status] += 1
        self._buckets[next((bound for bound in _BOUNDS_S if took_s <= bound), float("inf"))] += 1
        self._seconds += took_s

    def text(self) -> bytes:
        """All of it, in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        intake = self._intake
        yield self._request_counts()
        yield self._request_times()
        yield GaugeMetricFamily("relive_requests_in_flight", "Requests being answered.", self._in_flight())
        yield CounterMetricFamily("relive_ranges", "Ranges of journals that were taken.", intake.ranges)
        yield CounterMetricFamily("relive_range_bytes", "New bytes of journals that were taken.", intake.taken_bytes)
        yield CounterMetricFamily("relive_commits", "Batches that were forced to disk together.", intake.batches)
        yield CounterMetricFamily("relive_store_failures", "Ranges that the disk did not take.", intake.failures)
        yield GaugeMetricFamily("relive_pending_bytes", "Bytes that wait for the disk.", intake.pending_bytes)
        yield GaugeMetricFamily("process_resident_memory_bytes", "Memory in use.", resident_bytes())
        yield GaugeMetricFamily("process_start_time_seconds", "When the server started.", self._started)

    def _request_counts(self) -> Metric:
        labels = ("route", "method", "status")
        family = CounterMetricFamily("relive_requests", "Requests by route, method and status.", labels=labels)
        for (route, method, status), count in sorted(self._requests.items()):
            family.add_metric((route, method, str(status)), count)
        return family

    def _request_times(self) -> Metric:
        total, buckets = 0, []
        for bound in (*_BOUNDS_S, float("inf")):
            total += self._buckets[bound]
            buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
        return HistogramMetricFamily("relive_request_seconds", "How long answers took.", buckets, self._seconds)


def resident_bytes() -> int:
    """Memory that this process has now; where that can't be told, the most that it had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
