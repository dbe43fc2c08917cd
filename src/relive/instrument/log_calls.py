"""Log calls that are none of relive's: which names a call tells, to whichever logger it goes."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from relive.instrument.call_facts import last_name
from relive.instrument.printed_numbers import label, named_numbers, starts_with_words
from relive.instrument.project_survey import parsed

TEXT_CALLS = frozenset("print info debug warning error critical set_description set_description_str write "
                       "set_postfix_str".split())  # fmt: skip
_NAMED = frozenset("add_scalar log_metric log_scalar log".split())
_DICTS = frozenset("log log_metrics log_dict set_postfix".split())
_VALUE = object()


def names_told(call: ast.Call) -> list[re.Pattern[str]]:
    """The names that a call may tell, as patterns: `writer.add_scalar("loss", …)`, `wandb.log({"loss": …})`, print."""
    return [re.compile(text) for text in dict.fromkeys(_told(call))]


def told_by_name(texts: Iterable[str]) -> frozenset[str]:
    """Names that some call of a project tells a logger by name; a text that tells them too adds nothing."""
    found: set[str] = set()
    for text in texts:
        tree = parsed(text)
        for call in ast.walk(tree) if tree is not None else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
                found |= set(_constants(call.func.attr, call.args[0]))
    return frozenset(found)


def _constants(name: str, first: ast.expr) -> Iterator[str]:
    if name in _NAMED and isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield first.value
    elif name in _DICTS and isinstance(first, ast.Dict):
        keys = [key.value for key in first.keys if isinstance(key, ast.Constant)]
        yield from (key for key in keys if isinstance(key, str))


def _told(call: ast.Call) -> Iterator[str]:
    name = last_name(call.func)
    first = call.args[0] if call.args else None
    if name in _NAMED and first is not None and (text := _pattern(first)) is not None:
        yield text
    if name == "add_scalars" and len(call.args) > 1 and (start := _pattern(call.args[0])) is not None:
        yield from (f"{start}/{key}" for key in _keys(call.args[1]))
    if name in _DICTS and first is not None:
        yield from _keys(first)
    if name == "set_postfix":
        yield from (re.escape(keyword.arg) for keyword in call.keywords if keyword.arg and keyword.arg != "refresh")
    if name in TEXT_CALLS:
        yield from _in_text(_parts(call, is_print=name == "print"))


def _pattern(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in node.values)
    return None


def _keys(node: ast.expr) -> Iterator[str]:
    """The keys of a dict, and of dicts in it with dots between, as loggers of dicts name them."""
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        text = _pattern(key) if key is not None else None
        if text is not None and isinstance(value, ast.Dict):
            yield from (f"{text}\\.{inner}" for inner in _keys(value))
        elif text is not None:
            yield text


def _parts(call: ast.Call, *, is_print: bool) -> list[Any]:
    """The texts of a call's arguments, with a mark for each value between them."""
    parts: list[Any] = []
    for at, argument in enumerate(call.args if is_print else call.args[:1]):
        if at:
            parts.append(" ")
        parts += _pieces(argument)
    return parts


def _pieces(node: ast.expr) -> list[Any]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [piece for text in re.split(r"%[-+ #0]*\d*(?:\.\d+)?[dfegsr]|\{[^{}]*\}", node.value)
                for piece in (text, _VALUE)][:-1]  # fmt: skip
    if isinstance(node, ast.JoinedStr):
        return [part.value if isinstance(part, ast.Constant) else _VALUE for part in node.values]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _pieces(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _pieces(node.func.value)
    return [_VALUE]


def _in_text(parts: Sequence[Any]) -> Iterator[str]:
    yield from (re.escape(name) for name, _ in named_numbers(parts, lambda part: part is _VALUE))
    for before, text in itertools.pairwise(parts):
        # `f"{split} loss: {value}"`: the value before belongs to the name.
        if before is _VALUE and isinstance(text, str) and starts_with_words(text) and (name := label(text)):
            yield f".+_{re.escape(name)}"
