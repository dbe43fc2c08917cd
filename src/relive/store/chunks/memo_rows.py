"""The rows of the memo table, and the checksums that tell whether a row is what was written."""

from __future__ import annotations

import operator
from typing import NamedTuple

import xxhash


class MemoRow(NamedTuple):
    """A memoised call, as it is stored."""

    key: str
    function: str
    kind: str
    form: bytes
    seal: str
    chunks: str
    size_bytes: int
    pickled: str
    code: str
    arguments: str
    extra: str
    run: str
    created_us: int
    used_us: int
    took_s: float

    @property
    def is_whole(self) -> bool:
        """Whether the checksum matches the content; that of an entry of format 1 covers key, kind and form."""
        if not isinstance(self.seal, str):  # SQLite keeps whatever type it finds
            return False
        if not self.seal.startswith(_SEAL):
            return self.seal == _old_row_hash(self)
        return self.seal == _row_hash(self)

    def sealed(self) -> MemoRow:
        """Returns the row with the checksum of its content."""
        return self._replace(seal=_row_hash(self))


class InputsRow(NamedTuple):
    """What the computation of an entry has read."""

    key: str
    entry: str
    inputs: bytes
    seal: str
    time_us: int

    @property
    def is_whole(self) -> bool:
        return self.seal == _inputs_hash(self)

    def sealed(self) -> InputsRow:
        return self._replace(seal=_inputs_hash(self))


class MissRow(NamedTuple):
    """A call that was not found and had to be computed, and whether its result was stored."""

    key: str
    function: str
    code: str
    arguments: str
    extra: str
    found: str
    kept: str
    run: str
    time_us: int


_SEAL = "2:"
_SEALED = operator.itemgetter(
    *(at for at, name in enumerate(MemoRow._fields) if name not in ("form", "seal", "used_us"))
)


def _row_hash(row: MemoRow) -> str:
    """Returns the checksum of a row: SQLite has neither checksums on its pages nor strict types."""
    if not isinstance(row.form, bytes):
        return ""
    others = "\0".join(map(str, _SEALED(row))).encode("utf-8", "surrogatepass")
    return _SEAL + xxhash.xxh3_128_hexdigest(b"%b\0%b" % (others, row.form))


def _old_row_hash(row: MemoRow) -> str:
    if not all(isinstance(one, str) for one in row[:3]) or not isinstance(row.form, bytes):
        return ""
    return xxhash.xxh3_64_hexdigest(b"%b %b %b" % (row.key.encode(), row.kind.encode(), row.form))


def _inputs_hash(row: InputsRow) -> str:
    return _SEAL + xxhash.xxh3_128_hexdigest(repr((row.key, row.entry, row.inputs, row.time_us)).encode())
