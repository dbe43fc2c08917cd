"""Reads marshalled plain values without `marshal.loads`, which trusts its input: no code objects, no wild lengths."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from relive.errors import Damaged

_MAX_DEPTH = 400
_SHORT_LONG_BITS = 15
_CONSTANTS: dict[int, Any] = {ord("N"): None, ord("T"): True, ord("F"): False, ord("."): ...}
_END = object()  # of a dict


def read_marshalled(data: bytes) -> Any:
    """Returns what `marshal.dumps(value, 2)` wrote; raises `Damaged` for anything but plain values and containers."""
    reader = _Reader(data)
    try:
        value = reader.value(0)
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, ValueError, OverflowError) as error:
        raise Damaged(f"a value at byte {reader.at} of a checkpoint is no plain data ({error})") from error
    if value is _END:
        raise Damaged("a checkpoint has an end without a beginning")
    return value


class _Reader:
    """A position in marshalled bytes. Texts that were stored before are referred to by number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._texts: list[str] = []
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        tag = self._data[self.at]
        self.at += 1
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == ord("0"):
            return _END
        scalar = _SCALARS.get(tag)
        if scalar is not None:
            return scalar(self)
        container = _CONTAINERS.get(tag)
        if container is None:
            raise ValueError(f"kind {tag}")
        return container(self, depth + 1)

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self.at : self.at + count]
        self.at += count
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def sized(self) -> bytes:
        return self.take(self.number("<i"))

    def items(self, depth: int) -> list[Any]:
        count = self.number("<i")
        if not 0 <= count <= len(self._data) - self.at:  # each item takes a byte at least
            raise ValueError("it has more items than bytes")
        return [self._item(depth) for _ in range(count)]

    def pairs(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while (key := self.value(depth)) is not _END:
            found[key] = self._item(depth)
        return found

    def long(self) -> int:
        count: int = self.number("<i")
        digits: tuple[int, ...] = struct.unpack(f"<{abs(count)}H", self.take(2 * abs(count)))
        size = sum(digit << (_SHORT_LONG_BITS * at) for at, digit in enumerate(digits))
        return -size if count < 0 else size

    def text(self, *, is_kept: bool) -> str:
        found = self.sized().decode("utf-8", "surrogatepass")
        if is_kept:
            self._texts.append(found)
        return found

    def known_text(self) -> str:
        at: int = self.number("<i")
        return self._texts[at]

    def _item(self, depth: int) -> Any:
        value = self.value(depth)
        if value is _END:
            raise ValueError("an end inside of a container")
        return value


_SCALARS: dict[int, Callable[[_Reader], Any]] = {
    ord("i"): lambda reader: reader.number("<i"),
    ord("l"): _Reader.long,
    ord("g"): lambda reader: reader.number("<d"),
    ord("y"): lambda reader: complex(reader.number("<d"), reader.number("<d")),
    ord("s"): _Reader.sized,
    ord("u"): lambda reader: reader.text(is_kept=False),
    ord("t"): lambda reader: reader.text(is_kept=True),
    ord("R"): _Reader.known_text,
}
_CONTAINERS: dict[int, Callable[[_Reader, int], Any]] = {
    ord("("): lambda reader, depth: tuple(reader.items(depth)),
    ord("["): lambda reader, depth: reader.items(depth),
    ord("{"): lambda reader, depth: reader.pairs(depth),
    ord("<"): lambda reader, depth: set(reader.items(depth)),
    ord(">"): lambda reader, depth: frozenset(reader.items(depth)),
}
