"""Wraps methods of library classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap_method(kind: type, name: str, wrapper: Callable[..., Any]) -> None:
    """Replaces a method by `wrapper(original, self, …)`. A method is wrapped only once."""
    original = getattr(kind, name)
    if hasattr(original, "__relive_wraps__"):
        return

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        return wrapper(original, self, *args, **options)

    wrapped.__relive_wraps__ = True  # type: ignore[attr-defined]
    setattr(kind, name, wrapped)
