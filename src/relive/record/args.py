"""`--kwargs a=1 b=x`: removes it from argv and converts each value to the type of its default."""

from __future__ import annotations

import ast
import enum
import json
import math
import re
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType
from typing import Any

from relive.errors import ArgError
from relive.record.provenance import is_secret

FLAG = "--kwargs"


def pop_kwargs(argv: list[str]) -> dict[str, str]:
    """Removes `--kwargs name=value …` from argv, in place, and returns the pairs."""
    found: dict[str, str] = {}
    while FLAG in argv:
        at = argv.index(FLAG)
        end = at + 1
        while end < len(argv) and _is_pair(argv[end]):
            name, _, raw = argv[end].partition("=")
            found[name] = raw
            end += 1
        if end == at + 1:
            raise ArgError(f"{FLAG} is not followed by name=value; write for example {FLAG} lr=0.01 seed=3")
        del argv[at:end]
    return found


def _is_pair(token: str) -> bool:
    name, equals, _ = token.partition("=")
    return bool(equals) and bool(name) and not name.startswith("-")


def convert(name: str, raw: str, default: Any) -> Any:
    """Converts the text of an arg to the type of its default."""
    try:
        return _converter_for(default)(raw)
    except (ValueError, KeyError, SyntaxError, TypeError, OverflowError) as error:
        kind = "value" if default is None else type(default).__name__
        if is_secret(name):  # the message is recorded as the error of the run
            raise ArgError(f"{FLAG} {name}: the value is not a valid {kind}; pass another one") from None
        raise ArgError(
            f"{FLAG} {name}={raw}: {raw!r} is not a valid {kind} (the default is {default!r}); "
            f"write for example {FLAG} {name}={_example(default)}"
        ) from error


def _converter_for(default: Any) -> Callable[[str], Any]:
    kind = type(default)
    if kind in _CONVERTERS:
        return _CONVERTERS[kind]
    if isinstance(default, enum.Enum):
        return lambda raw: _parse_enum(kind, raw)
    if isinstance(default, PurePath):
        return kind
    if kind.__module__ == "numpy":
        return _numpy_converter(kind)
    return _parse_literal


def _parse_bool(raw: str) -> bool:
    return {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False,
            "off": False}[raw.strip().lower()]  # fmt: skip


def _parse_int(raw: str) -> int:
    try:
        return int(raw, 0)
    except ValueError:
        if not math.isfinite(float(raw)):
            raise
        from decimal import Decimal

        number = Decimal(
            raw
        )  # 1e6 is a common way to write a number of steps; Decimal, as a float is not exact at 1e23
        if number != number.to_integral_value():
            raise
        return int(number)


def _sequence_parser(kind: type[list[Any]] | type[tuple[Any, ...]]) -> Callable[[str], Any]:
    def parse(raw: str) -> Any:
        text = raw.strip()
        is_literal = text.startswith(("[", "("))
        value = (
            _parse_strict_literal(text) if is_literal else [_parse_literal(part) for part in text.split(",") if part]
        )
        if not isinstance(value, list | tuple):
            raise ValueError(raw)
        return kind(value)

    return parse


def _parse_dict(raw: str) -> dict[Any, Any]:
    value = _parse_strict_literal(raw)
    if not isinstance(value, dict):
        raise ValueError(raw)
    return value


def _parse_literal(raw: str) -> Any:
    """Returns a number, list, dict, bool or None if the text reads like one; otherwise the text itself."""
    if raw.lower() == "none":
        return None
    try:
        return _parse_strict_literal(raw)
    except ValueError:
        return raw


def _parse_strict_literal(raw: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(raw)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise ValueError(raw)


def _parse_enum(kind: type[enum.Enum], raw: str) -> enum.Enum:
    try:
        return kind[raw]
    except KeyError:
        return next(member for member in kind if str(member.value) == raw) if _has_value(kind, raw) else kind(raw)


def _has_value(kind: type[enum.Enum], raw: str) -> bool:
    return any(str(member.value) == raw for member in kind)


def _numpy_converter(kind: Any) -> Callable[[str], Any]:
    import numpy as np

    if kind is np.bool_:
        return lambda raw: kind(_parse_bool(raw))
    return lambda raw: kind(_parse_int(raw)) if issubclass(kind, np.integer) else kind(raw)


def _example(default: Any) -> str:
    if isinstance(default, enum.Enum):
        return default.name
    if isinstance(default, list | tuple):
        return ",".join(str(item) for item in default) or "1,2"
    return "value" if default is None else str(default)


_CONVERTERS: dict[type, Callable[[str], Any]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: float,
    str: str,
    list: _sequence_parser(list),
    tuple: _sequence_parser(tuple),
    dict: _parse_dict,
    type(None): _parse_literal,
}


def unknown_kwargs_message(unknown: list[str], known: list[str]) -> str:
    listed = ", ".join(known) or "none: the script calls no relive.arg"
    return f"{FLAG} {' '.join(unknown)}: no relive.arg of that name; known are {listed}"


def is_result_dropped(frame: FrameType, name: str) -> bool:
    """Whether the call that a frame is in is a statement of its own, and the only one in its file to ask for an arg."""
    import dis  # imported only if there are kwargs
    import linecache

    following = (step for step in dis.get_instructions(frame.f_code) if step.offset > frame.f_lasti)
    if next((step.opname for step in following), "") != "POP_TOP":
        return False
    asked = re.findall(rf"\barg\(\s*['\"]{re.escape(name)}['\"]", "".join(linecache.getlines(frame.f_code.co_filename)))
    return len(asked) < 2
