"""Finds named numbers in printed text, such as `loss: 0.31`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# A standalone number: not part of a date, a time, `3/10` or an address; a unit may follow.
_NUMBER = re.compile(
    r"(?<![\w.:/\\-])[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
    r"(?=(?:%|s|ms|sec|x|k|M|MB|GB)?(?![\w:/\\]|\.\d|,\d{3}|-\d))"
)
_WORDS = re.compile(r"(?:[A-Za-z_][\w/.@+\-]*)(?:[ \t]+[A-Za-z_][\w/.@+\-]*)*$")
_OPENING = " \t([{<|'\"~≈"
MAX_WORDS = 4
# Words before a number that is an iteration count, not a measurement.
COUNTERS = frozenset("epoch epochs ep step steps iter iters iteration iterations it batch batches fold round".split())
_FILLERS = frozenset(
    "in of at for to on the a an and is was after with by from than are has have took over all each per or as took "
    "first last top using out until".split()
)

Parts = Iterable[Any]  # texts, and the values between them


def find_named_numbers(parts: Parts, is_number: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    """Returns the (name, number) pairs of a text given in parts.

    A part that is neither text nor number separates what is before it from what is after it.
    """
    found: list[tuple[str, Any]] = []
    before = ""
    for part in parts:
        if isinstance(part, str):
            pairs, before = _scan_text(before, part)
            found += pairs
            continue
        name = label(before) if is_number(part) else None
        if name is not None:
            found.append((name, part))
        before = ""
    return found


def _scan_text(before: str, text: str) -> tuple[list[tuple[str, Any]], str]:
    """Returns the named numbers of a text, and the text after the last number."""
    found: list[tuple[str, Any]] = []
    start = 0
    for match in _NUMBER.finditer(text):
        name = label(before + text[start : match.start()])
        if name is not None:
            found.append((name, _parse_number(match.group())))
        before, start = "", match.end()
    return found, before + text[start:]


def _parse_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def label(before: str) -> str | None:
    """Returns the name formed by the words right before a number: `val_loss` for `…, val loss: `."""
    bare = before.rsplit("\n", 1)[-1].rstrip(_OPENING)
    is_marked = bare.endswith((":", "="))
    if not is_marked and bare == before:
        return None  # nothing between word and number: the number is part of the word
    words = _words(bare.rstrip(":= \t'\"`*"))
    if not words or len(words) > MAX_WORDS or words[-1].lower() in COUNTERS or words[-1].lower() in _FILLERS:
        return None
    if not is_marked and len(words[-1]) < 2:
        return None
    return "_".join(words).lower()


def _words(text: str) -> list[str]:
    match = _WORDS.search(text)
    words = match.group().split() if match is not None else []
    while words and words[0].lower() in _FILLERS:
        words = words[1:]
    return [word.strip(".-/") for word in words if word.strip(".-/")]


def starts_with_words(text: str) -> bool:
    """Whether a text consists of words up to its number, so that a value before the text may be part of the name."""
    bare = text.rstrip(_OPENING).rstrip(":= \t'\"`*")
    match = _WORDS.search(bare)
    return match is not None and not bare[: match.start()].strip()


def flatten_dict(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested dicts, with names like `optim.lr`."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from flatten_dict(value, f"{name}.")
        else:
            yield name, value
