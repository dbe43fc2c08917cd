"""What a reducer may return: named parts, raw bytes, a lenient value; and the exception for what has no hash."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK_BYTES = 16 << 20


class NoHash(Exception):
    """A value without a stable hash; collects its path while it propagates out of the enclosing values."""

    def __init__(self, kind: type, reason: str = "") -> None:
        super().__init__(kind)
        self.kind, self.reason, self.path = kind, reason, ""

    def nested_in(self, step: str) -> Self:
        self.path = step + self.path
        return self


class ReducedParts(dict[str, object]):
    """The named parts of an object; in an error path they appear as `.part` rather than `['part']`."""


@dataclasses.dataclass(frozen=True, slots=True)
class RawBytes:
    """Bytes that are hashed separately, so that the hash does not depend on block boundaries."""

    size_bytes: int
    blocks: Iterable[Buffer]


@dataclasses.dataclass(frozen=True, slots=True)
class Lenient:
    """A value that is replaced by the name of its type if it has no stable hash."""

    value: object


def qualified_name(thing: Any) -> str:
    # A spawned worker imports the user's script as __mp_main__.
    module = str(getattr(thing, "__module__", None)).replace("__mp_main__", "__main__")
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__name__
    return f"{module}.{name}"


def blocks_of(array: Any, size_bytes: int, *, whole: bool) -> Iterator[Any]:
    """Yields the array, or slices along its first axis, so that contiguous copies never double the memory."""
    if whole or size_bytes <= _BLOCK_BYTES:
        yield array
        return
    rows = max(1, len(array) * _BLOCK_BYTES // size_bytes)
    for start in range(0, len(array), rows):
        yield array[start : start + rows]
