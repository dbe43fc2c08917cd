"""Log calls of other loggers and prints: which names a call logs."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from relive.instrument.call_facts import last_name
from relive.instrument.printed_numbers import find_named_numbers, label, starts_with_words
from relive.instrument.project_survey import parse_or_none

TEXT_CALLS = frozenset("print info debug warning error critical set_description set_description_str write "
                       "set_postfix_str".split())  # fmt: skip
_NAME_FIRST = frozenset("add_scalar log_metric log_scalar log".split())  # the first argument is a name
_DICT_FIRST = frozenset("log log_metrics log_dict set_postfix".split())  # the first argument is a dict of values
_VALUE = object()  # a placeholder for a formatted value


def logged_name_patterns(call: ast.Call) -> list[re.Pattern[str]]:
    """Returns patterns for the names a call may log: `add_scalar("loss", …)`, `wandb.log({"loss": …})`, prints."""
    return [re.compile(text) for text in dict.fromkeys(_name_patterns(call))]


def names_passed_to_loggers(texts: Iterable[str]) -> frozenset[str]:
    """Returns the names that calls of a project pass to a logger as constants; printing these again adds nothing."""
    found: set[str] = set()
    for text in texts:
        tree = parse_or_none(text)
        for call in ast.walk(tree) if tree is not None else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
                found |= set(_constant_names(call.func.attr, call.args[0]))
    return frozenset(found)


def _constant_names(name: str, first: ast.expr) -> Iterator[str]:
    if name in _NAME_FIRST and isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield first.value
    elif name in _DICT_FIRST and isinstance(first, ast.Dict):
        keys = [key.value for key in first.keys if isinstance(key, ast.Constant)]
        yield from (key for key in keys if isinstance(key, str))


def _name_patterns(call: ast.Call) -> Iterator[str]:
    name = last_name(call.func)
    first = call.args[0] if call.args else None
    if name in _NAME_FIRST and first is not None and (text := _pattern(first)) is not None:
        yield text
    if name == "add_scalars" and len(call.args) > 1 and (start := _pattern(call.args[0])) is not None:
        yield from (f"{start}/{key}" for key in _dict_key_patterns(call.args[1]))
    if name in _DICT_FIRST and first is not None:
        yield from _dict_key_patterns(first)
    if name == "set_postfix":
        yield from (re.escape(keyword.arg) for keyword in call.keywords if keyword.arg and keyword.arg != "refresh")
    if name in TEXT_CALLS:
        yield from _patterns_in_text(_text_parts(call, is_print=name == "print"))


def _pattern(node: ast.expr) -> str | None:
    """Returns a regular expression for the values of a string expression, if it is a constant or an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in node.values)
    return None


def _dict_key_patterns(node: ast.expr) -> Iterator[str]:
    """Yields patterns for the keys of a dict; keys of nested dicts are joined with dots, as loggers do."""
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        text = _pattern(key) if key is not None else None
        if text is not None and isinstance(value, ast.Dict):
            yield from (f"{text}\\.{inner}" for inner in _dict_key_patterns(value))
        elif text is not None:
            yield text


def _text_parts(call: ast.Call, *, is_print: bool) -> list[Any]:
    """Returns the texts of a call's arguments, with `_VALUE` for each value between them."""
    parts: list[Any] = []
    for at, argument in enumerate(call.args if is_print else call.args[:1]):
        if at:
            parts.append(" ")
        parts += _split_format(argument)
    return parts


def _split_format(node: ast.expr) -> list[Any]:
    """Splits a text argument (%-format, `str.format`, f-string) at the values formatted into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [piece for text in re.split(r"%[-+ #0]*\d*(?:\.\d+)?[dfegsr]|\{[^{}]*\}", node.value)
                for piece in (text, _VALUE)][:-1]  # fmt: skip
    if isinstance(node, ast.JoinedStr):
        return [part.value if isinstance(part, ast.Constant) else _VALUE for part in node.values]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _split_format(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _split_format(node.func.value)
    return [_VALUE]


def _patterns_in_text(parts: Sequence[Any]) -> Iterator[str]:
    yield from (re.escape(name) for name, _ in find_named_numbers(parts, lambda part: part is _VALUE))
    for before, text in itertools.pairwise(parts):
        # In `f"{split} loss: {value}"`, the preceding value is part of the name.
        if before is _VALUE and isinstance(text, str) and starts_with_words(text) and (name := label(text)):
            yield f".+_{re.escape(name)}"
