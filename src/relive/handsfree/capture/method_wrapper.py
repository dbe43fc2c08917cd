"""Putting code of ours around methods of a library, so that it does what it did, and we are told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap_method(kind: type, name: str, around: Callable[..., Any]) -> None:
    """`around(original, self, …)` is what the method does from now on; once, however often it is asked for."""
    original = getattr(kind, name)
    if hasattr(original, "__relive_wraps__"):
        return

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        return around(original, self, *args, **options)

    wrapped.__relive_wraps__ = True  # type: ignore[attr-defined]
    setattr(kind, name, wrapped)
