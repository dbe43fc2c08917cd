"""Splits the header of a statement into tokens; a name with its attributes is one token."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from functools import lru_cache

from relive.transplant.syntax.statement_tree import RECEIVERS, STRING

_TOKEN = re.compile(
    rf"(?:\b[rRbBuUfF]{{1,2}})?(?:{STRING})|#[^\r\n]*"
    r"|((?<![\w.])[^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)*)|\w+|[^\w\s]",
    re.DOTALL,
)
_ASSIGNS = re.compile(r"\s*=(?!=)")
_KEYWORDS = frozenset(keyword.kwlist)
_MAX_ATTRIBUTES = 2  # of a variable in the old version: `self.config.lr`

VariablePath = tuple[str, ...]  # a name and the attributes taken of it


@dataclass(frozen=True, slots=True)
class HeadToken:
    """A token of a header; `path` is empty unless it is a name, with attributes or without."""

    text: str  # without `self.`, so that a variable and the attribute that it became are alike
    path: VariablePath
    is_called: bool


@lru_cache(maxsize=4096)
def head_tokens(head: str) -> tuple[HeadToken, ...]:
    """Splits a header; the keyword of an argument is no name."""
    tokens: list[HeadToken] = []
    depth = 0
    for found in _TOKEN.finditer(head):
        text = found.group()
        depth += (text in "([{") - (text in ")]}")
        is_name = found.group(1) is not None and text not in _KEYWORDS
        is_argument = depth > 0 and _ASSIGNS.match(head, found.end()) is not None
        path = tuple("".join(text.split()).split(".")) if is_name and not is_argument else ()
        is_called = head[found.end() : found.end() + 1] == "("
        stripped = path[1:] if len(path) > 1 and path[0] in RECEIVERS else path
        tokens.append(HeadToken(".".join(stripped) if path else text, path, is_called))
    return tuple(tokens)


def path_opposite(path: VariablePath, ours: HeadToken, theirs: HeadToken) -> VariablePath | None:
    """Returns what is called `path` in a token of the new version, in the opposite token: `net` for `self.net`."""
    if theirs.path[: len(path)] == path:
        return path
    rest = ours.path[len(path) :]
    shared = len(theirs.path) - len(rest)
    if shared < 1 or theirs.path[shared:] != rest:
        return None
    other = theirs.path[:shared]
    is_method = not rest and theirs.is_called and len(other) > 1 and not ours.is_called
    return other if len(other) <= _MAX_ATTRIBUTES + 1 and not is_method else None


def is_same_token(one: HeadToken, other: HeadToken) -> bool:
    """Whether two tokens are equal, or names with the same last attribute: `self.model.train`, `net.train`."""
    return one.text == other.text or (len(one.path) > 1 < len(other.path) and one.path[-1] == other.path[-1])
