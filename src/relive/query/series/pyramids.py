"""Min–max pyramids of long lines: buckets of 16, 256, … values with lowest, highest and last, in one file per line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from relive.errors import Damaged
from relive.store import atomic_write, make_folder

FACTOR = 16
LONG = 20_000  # lines of fewer values are read from the index, which takes milliseconds
VERSION = 1
_SEAL_BYTES = 8
_MAX_HEAD_BYTES = 16 << 20
Array = NDArray[Any]


class PyramidHead(msgspec.Struct, frozen=True):
    """What precedes the numbers in a file."""

    version: int
    stamp: int  # of the run's folder: a merged replay changes it
    count: int
    texts: int
    axes: list[str]
    levels: list[int]  # buckets of each level, the finest first
    nonfinite: dict[str, list[list[float]]]  # kind → x of each axis
    sources: list[list[float]]  # first and last position, replay, verdict


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Consecutive values in buckets. `axes` has the x of the last value of each bucket."""

    axes: Mapping[str, Array]
    last: Array
    low: Array  # NaN if no value of the bucket is finite
    high: Array

    def __len__(self) -> int:
        return len(self.last)

    def reduce(self, size: int) -> Buckets:
        """Returns buckets of `size` of these each; the first one stays alone, so that a curve begins where it began."""
        if size <= 1 or not len(self):
            return self
        starts = np.r_[0, np.arange(1, len(self), size)]
        ends = np.r_[starts[1:], len(self)] - 1
        return Buckets(
            {name: axis[ends] for name, axis in self.axes.items()}, self.last[ends],
            np.fmin.reduceat(self.low, starts), np.fmax.reduceat(self.high, starts),
        )  # fmt: skip

    def part(self, rows: slice) -> Buckets:
        axes = {name: axis[rows] for name, axis in self.axes.items()}
        return Buckets(axes, self.last[rows], self.low[rows], self.high[rows])


def raw_buckets(axes: Mapping[str, Array], value: Array) -> Buckets:
    """Returns a bucket for each value."""
    finite = np.where(np.isfinite(value), value, np.nan)
    return Buckets(axes, value, finite, finite)


def pyramid_levels(base: Buckets) -> list[Buckets]:
    """Returns the levels above the values, the finest first."""
    levels = []
    while len(base) > FACTOR:
        base = base.reduce(FACTOR)
        levels.append(base)
    return levels


def pyramid_path(index_folder: Path, run: str, name: str, rank: int) -> Path:
    return index_folder / "pyramids" / run / f"{xxhash.xxh3_64_hexdigest(name.encode())}-{rank}.bin"


def write_pyramid(path: Path, head: PyramidHead, levels: list[Buckets]) -> None:
    """Writes a pyramid; the file appears when it is complete."""
    arrays = [array for level in levels for array in _arrays(level, head.axes)]
    text = msgspec.json.encode(head)
    body = len(text).to_bytes(8, "little") + text + b"".join(array.astype("<f8").tobytes() for array in arrays)
    make_folder(path.parent)
    atomic_write(path, body + xxhash.xxh3_64_digest(body), durable=False)


def is_current(path: Path, stamp: int) -> bool:
    """Whether there is a pyramid for this state of the run's folder; its numbers are verified when they are read."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            text = file.read(size) if size < _MAX_HEAD_BYTES else b""
        head = msgspec.json.decode(text, type=PyramidHead)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return head.version == VERSION and head.stamp == stamp


def read_pyramid(path: Path, stamp: int) -> tuple[PyramidHead, list[Buckets]] | None:
    """Returns a pyramid; None if there is none, if it is outdated, or if its bytes are not what was written."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    body, seal = raw[:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
    if xxhash.xxh3_64_digest(body) != seal:
        return None  # derived: it is made again
    size = int.from_bytes(body[:8], "little")
    head = msgspec.json.decode(body[8 : 8 + size], type=PyramidHead)
    if head.version != VERSION or head.stamp != stamp:
        return None
    return head, _levels(head, np.frombuffer(body[8 + size :], "<f8"))


def _levels(head: PyramidHead, numbers: Array) -> list[Buckets]:
    levels, at = [], 0
    for size in head.levels:
        parts = [numbers[at + size * k : at + size * (k + 1)] for k in range(len(head.axes) + 3)]
        at += size * (len(head.axes) + 3)
        levels.append(Buckets(dict(zip(head.axes, parts, strict=False)), *parts[len(head.axes) :]))
    if at != len(numbers):
        raise Damaged("a pyramid has more numbers than its head says; delete the folder index/pyramids of the home")
    return levels


def _arrays(level: Buckets, axes: list[str]) -> list[Array]:
    return [*(level.axes[name] for name in axes), level.last, level.low, level.high]
