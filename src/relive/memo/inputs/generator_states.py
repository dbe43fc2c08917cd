"""The states of the global random generators, compared before and after a computation."""

from __future__ import annotations

import sys
from typing import Any


def read_generators() -> dict[str, Any]:
    """Returns the states of the global generators of Python, numpy and torch, of those that are loaded."""
    found: dict[str, Any] = {}
    if (python := sys.modules.get("random")) is not None:
        found["random"] = python.getstate()
    if (numpy := sys.modules.get("numpy")) is not None and "numpy.random" in sys.modules:
        kind, words, *rest = numpy.random.get_state()
        found["numpy.random"] = (kind, words.tobytes(), *rest)
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_rng_state"):
        found["torch"] = bytes(torch.get_rng_state().numpy())
    return found


def which_drew(before: dict[str, Any]) -> list[str]:
    """Returns the generators that were used since."""
    now = read_generators()
    return [name for name in before if now.get(name) != before[name]]
