"""The filters of `warnings` as plain data: expressions as texts, classes of warnings by their names."""

from __future__ import annotations

import functools
import operator
import pickle
import re
import sys
import warnings
from typing import Any

Described = tuple[Any, ...]  # action, message, category, module and line


def current_filters() -> tuple[Described, ...]:
    """Returns the filters of `warnings` that are set now."""
    return _described_filters(tuple(warnings.filters))


@functools.lru_cache(maxsize=2)
def _described_filters(filters: tuple[Any, ...]) -> tuple[Described, ...]:
    return tuple(
        (action, _text_of(message), f"{category.__module__}:{category.__qualname__}", _text_of(module), line)
        for action, message, category, module, line in filters
    )


def _text_of(expression: Any) -> Any:
    """An expression of a filter is compiled, a plain text, or missing."""
    return (expression.pattern, expression.flags) if isinstance(expression, re.Pattern) else expression


def set_warning_filters(described: Any) -> None:
    """Sets filters in place of those that are set now."""
    if isinstance(described, bytes):  # a replay of a run that an earlier release recorded
        filters = pickle.loads(described)
    else:
        filters = [_filter_of(*one) for one in described]
    warnings.filters[:] = [one for one in filters if one is not None]  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _filter_of(action: str, message: Any, category: str, module: Any, line: int) -> Any:
    """Returns a filter; None if the class of its warnings is not loaded here, so that none of them can come."""
    place, _, name = category.partition(":")
    try:
        kind = operator.attrgetter(name)(sys.modules[place])
    except (KeyError, AttributeError):
        return None
    return action, _expression_of(message), kind, _expression_of(module), line


def _expression_of(text: Any) -> Any:
    return re.compile(*text) if isinstance(text, tuple) else text
