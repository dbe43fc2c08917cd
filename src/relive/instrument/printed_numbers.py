"""Numbers that a text tells by name, as `loss: 0.31`: how people print what they would otherwise log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# A number that stands alone: no date, no time, no `3/10`, no address; a unit may follow.
_NUMBER = re.compile(
    r"(?<![\w.:/\\-])[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
    r"(?=(?:%|s|ms|sec|x|k|M|MB|GB)?(?![\w:/\\]|\.\d|,\d{3}|-\d))"
)
_WORDS = re.compile(r"(?:[A-Za-z_][\w/.@+\-]*)(?:[ \t]+[A-Za-z_][\w/.@+\-]*)*$")
_OPENING = " \t([{<|'\"~≈"
MAX_WORDS = 4
# A word before a number that counts iterations, rather than naming what was measured.
COUNTERS = frozenset("epoch epochs ep step steps iter iters iteration iterations it batch batches fold round".split())
_FILLERS = frozenset(
    "in of at for to on the a an and is was after with by from than are has have took over all each per or as took "
    "first last top using out until".split()
)

Parts = Iterable[Any]  # texts, and the values between them


def named_numbers(parts: Parts, is_number: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    """The names and numbers that a text tells. A part that is neither text nor number breaks the text."""
    found: list[tuple[str, Any]] = []
    before = ""
    for part in parts:
        if isinstance(part, str):
            pairs, before = _in_text(before, part)
            found += pairs
            continue
        name = label(before) if is_number(part) else None
        if name is not None:
            found.append((name, part))
        before = ""
    return found


def _in_text(before: str, text: str) -> tuple[list[tuple[str, Any]], str]:
    found: list[tuple[str, Any]] = []
    start = 0
    for match in _NUMBER.finditer(text):
        name = label(before + text[start : match.start()])
        if name is not None:
            found.append((name, _parsed(match.group())))
        before, start = "", match.end()
    return found, before + text[start:]


def _parsed(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def label(before: str) -> str | None:
    """The name that the words right before a number give it: `val_loss` for `…, val loss: `."""
    bare = before.rsplit("\n", 1)[-1].rstrip(_OPENING)
    is_strong = bare.endswith((":", "="))
    if not is_strong and bare == before:
        return None  # nothing between: a part of a word
    words = _words(bare.rstrip(":= \t'\"`*"))
    if not words or len(words) > MAX_WORDS or words[-1].lower() in COUNTERS or words[-1].lower() in _FILLERS:
        return None
    if not is_strong and len(words[-1]) < 2:
        return None
    return "_".join(words).lower()


def _words(text: str) -> list[str]:
    match = _WORDS.search(text)
    words = match.group().split() if match is not None else []
    while words and words[0].lower() in _FILLERS:
        words = words[1:]
    return [word.strip(".-/") for word in words if word.strip(".-/")]


def starts_with_words(text: str) -> bool:
    """Do the words before a number reach back to the beginning of the text, so that others may belong to them?"""
    bare = text.rstrip(_OPENING).rstrip(":= \t'\"`*")
    match = _WORDS.search(bare)
    return match is not None and not bare[: match.start()].strip()


def dotted(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts, with names like `optim.lr`."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from dotted(value, f"{name}.")
        else:
            yield name, value
