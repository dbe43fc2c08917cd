"""Reads a journal's slots into numpy columns, also while they are being written; skips unwritten and torn slots."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.store.journal import slot_kinds
from relive.store.journal.journal_file import SLOT_BYTES, SLOTS_MAGIC

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """The written slots of a journal as numpy columns; `seq` is the position in the file."""

    seq: NDArray[Any]
    loop: NDArray[Any]
    iteration: NDArray[Any]
    bits: NDArray[Any]  # the value word as int64
    time: NDArray[Any]
    kind: NDArray[Any]
    name: NDArray[Any]
    holes: int = 0  # reserved but not written (the process died, or is writing now)
    torn: int = 0  # half written
    problems: list[str] = field(default_factory=list)
    raw: NDArray[Any] | Any = None  # the bytes of the file, if it was read from its beginning
    has_file: bool = True

    def first(self, count: int) -> Slots:
        """Returns the first `count` slots."""
        return Slots(
            self.seq[:count], self.loop[:count], self.iteration[:count], self.bits[:count], self.time[:count],
            self.kind[:count], self.name[:count],
        )  # fmt: skip

    def of(self, *kinds: int) -> Slots:
        """Returns the slots of the given kinds."""
        return self.where(is_kind(self.kind, kinds).nonzero()[0])

    def where(self, keep: NDArray[Any]) -> Slots:
        """Returns the slots that a mask or a list of rows selects."""
        return Slots(
            self.seq[keep], self.loop[keep], self.iteration[keep], self.bits[keep], self.time[keep], self.kind[keep],
            self.name[keep],
        )  # fmt: skip


def is_kind(kind: NDArray[Any], kinds: Collection[int]) -> NDArray[Any]:
    """Returns a mask of the rows whose kind is one of `kinds`, by one table lookup per row."""
    import numpy as np

    table = np.zeros(256, bool)
    table[list(kinds)] = True
    mask: NDArray[Any] = table[kind]
    return mask


def _slot_dtype() -> Any:
    import numpy as np

    return np.dtype([("loop", "<u4"), ("iteration", "<u4"), ("bits", "<i8"), ("time", "<u4"), ("tag", "<u4")])


def encode_slots(rows: Sequence[tuple[int, int, int, int, int]], clock_ns: int) -> bytes:
    """Returns the content of a slots file with these rows (loop, iteration, bits, kind, name), all at the same time."""
    import numpy as np

    table = np.zeros(len(rows), _slot_dtype())
    loop, iteration, bits, kind, name = (np.asarray(column, np.int64) for column in zip(*rows, strict=True))
    table["loop"], table["iteration"], table["bits"] = loop, iteration, bits
    table["time"] = clock_ns >> 10 & 0xFFFFFFFF
    table["tag"] = kind << 24 | name
    return SLOTS_MAGIC + table.tobytes()


def seal_fields(data: bytes) -> dict[str, Any]:
    """Returns the fields of the seal of a whole slots file."""
    from xxhash import xxh3_64_hexdigest

    count = len(data) // SLOT_BYTES - 1
    return {"first": 1, "count": count, "digest": xxh3_64_hexdigest(data[SLOT_BYTES:]), "last": True}


def read_slots(path: Path, first: int = 1, count: int = -1) -> Slots:
    """Reads the written slots of `<path>.slots` in order: all, or those among `count` slots from slot `first` on."""
    import numpy as np

    problems: list[str] = []
    has_file = True
    size_bytes = (count + 1) * SLOT_BYTES if count >= 0 else -1  # with the slot before, which may be the magic number
    try:
        file = path.with_name(path.name + ".slots")
        raw = np.fromfile(file, dtype=np.uint8, offset=(first - 1) * SLOT_BYTES, count=size_bytes)
    except FileNotFoundError:
        raw, has_file = np.empty(0, np.uint8), False
        problems.append("the slots file is missing")
    if first == 1 and len(raw) >= SLOT_BYTES and raw[:SLOT_BYTES].tobytes() != SLOTS_MAGIC:
        problems.append("the file does not begin with the magic number; it is not read")
        raw = raw[:0]
    table = raw[: len(raw) // SLOT_BYTES * SLOT_BYTES].view(_slot_dtype())[1:]
    tag = table["tag"]
    kind = (tag >> 24).astype(np.uint8)
    written = (kind != 0) & (table["loop"] != 0)
    seq = np.flatnonzero(written) + first
    last = int(seq[-1]) - first + 1 if len(seq) else 0
    torn = int(np.count_nonzero((kind[:last] != 0) != (table["loop"][:last] != 0)))
    has_gaps = len(seq) != last
    which: Any = written if has_gaps or not last else slice(0, last)  # a slice is cheaper than a gather
    rows = table[which]
    return Slots(
        seq=seq,
        loop=rows["loop"],
        iteration=rows["iteration"],
        bits=rows["bits"],
        time=rows["time"],
        kind=kind[which],
        name=(rows["tag"] & 0xFFFFFF).astype(np.int32),
        holes=last - len(seq) - torn,
        torn=torn,
        problems=problems,
        raw=raw if first == 1 else None,
        has_file=has_file,
    )


def has_line_slots(path: Path) -> bool:
    """Whether lines of a journal were written, by its slots."""
    return bool((read_slots(path).kind == slot_kinds.LINE).any())


def count_written_slots(path: Path, slots: Collection[int]) -> int:
    """Returns how many of the given slots are written by now."""
    with path.with_name(path.name + ".slots").open("rb") as file:
        return sum(os.pread(file.fileno(), SLOT_BYTES, slot * SLOT_BYTES)[-1:] not in (b"", b"\0") for slot in slots)


def wall_times_us(slots: Slots, wall_ns: int, clock_ns: int, tick_ns: int | None = None) -> NDArray[Any]:
    """Returns the wall clock time of each slot in microseconds: its 32-bit time, relative to the last tick before it.

    `tick_ns` is the last tick before these slots, if they are not the first of their journal.
    """
    import numpy as np

    ticks = slots.kind == slot_kinds.TICK
    anchors = np.concatenate([[clock_ns if tick_ns is None else tick_ns], slots.bits[ticks]]) >> 10
    base = anchors[np.cumsum(ticks)]
    delta = (slots.time.astype(np.int64) - (base & 0xFFFFFFFF)).astype(np.int64)
    # Signed difference modulo 2**32: a slot may be slightly older than the tick before it, since threads race.
    delta = (delta + 0x80000000) % 0x100000000 - 0x80000000
    placed: NDArray[Any] = ((base + delta) * 1024 - clock_ns + wall_ns) // 1000
    return placed
