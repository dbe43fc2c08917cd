"""Names that say that a value is a time, a speed or an amount of memory, which differs each time."""

from __future__ import annotations

import re

# Names of values that depend on the machine or the clock: they differ each time, whatever the state.
_VOLATILE_NAME = re.compile(
    r"(^|[_/.\- ])(time|times|seconds?|secs?|ms|us|ns|elapsed|duration|took|eta|wall|clock|timestamp|throughput|fps|"
    r"memory|mem|rss|vram|gpu_util|cpu|it_s|speed|sps|ips|runtime)(_s|_ms)?($|[_/.\- ])|_per_s(ec(ond)?)?$",
    re.IGNORECASE,
)
_TIMING = re.compile(
    r"runtime|_per_sec(ond)?($|_)|elapsed|wall_?(time|clock)|duration|throughput|timestamp", re.IGNORECASE
)


def has_volatile_name(name: str) -> bool:
    """Whether a name says that its value is a time, a speed or an amount of memory."""
    return _VOLATILE_NAME.search(name) is not None


def is_timing(name: str) -> bool:
    """Whether a name can only be that of a measured time or speed, not that of a quantity in a simulation."""
    return _TIMING.search(name) is not None
