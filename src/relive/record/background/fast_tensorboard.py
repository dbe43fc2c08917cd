"""Faster, bit-identical replacements for TensorBoard's checksums and histogram counts."""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

SUMMARY = "torch.utils.tensorboard.summary"
RECORDS = "tensorboard.summary.writer.record_writer"
CRC32C = 0x82F63B78  # Castagnoli's polynomial, bits reversed
SHORT_BYTES = 128
BLOCK_BYTES = 1024
BLOCK_VALUES = 1 << 16
CELLS = 1 << 16


def patch_tensorboard() -> None:
    """Replaces functions of TensorBoard in this process, if it is imported and the results are identical."""
    records, summary = sys.modules.get(RECORDS), sys.modules.get(SUMMARY)
    if records is not None:
        _replace_if_equal([records], "masked_crc32c", masked_crc32c, _checksums_agree)
    if summary is not None:
        users = [summary, sys.modules.get("torch.utils.tensorboard.writer", summary)]
        _replace_if_equal(users, "histogram", _make_histogram(summary), _histograms_agree)


def _replace_if_equal(modules: list[Any], name: str, ours: Any, agree: Callable[[Any, Any], bool]) -> None:
    """Replaces a function if it agrees with ours on samples; another release may compute something else."""
    try:
        same = agree(getattr(modules[0], name), ours)
    except Exception:  # noqa: BLE001 - an unknown release; its own code stays, just slower
        return
    if same:
        for module in modules:
            setattr(module, name, ours)


def _checksums_agree(theirs: Any, ours: Any) -> bool:
    data = bytes(i * i % 251 for i in range(3 * BLOCK_BYTES + 7))
    return all(theirs(data[:size]) == ours(data[:size]) for size in (0, 8, SHORT_BYTES, BLOCK_BYTES, len(data)))


def _histograms_agree(theirs: Any, ours: Any) -> bool:
    edges = [-1e3, -1.5, -0.1, 0.0, 0.3, 2.0, 1e3]
    values = np.tan(np.arange(1000, dtype=np.float32))
    kinds = (values, values[:1], np.abs(values).reshape(10, 100).T, np.zeros(3, np.float32))
    return all(theirs("x", some, edges) == ours("x", some, edges) for some in kinds)


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC-32C of a TensorBoard record."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C. Long data is processed in blocks: CRC is linear, so bytes contribute independently."""
    state = 0xFFFFFFFF
    if len(data) <= SHORT_BYTES:
        table = _byte_table()
        for byte in data:
            state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
        return state ^ 0xFFFFFFFF
    values = np.frombuffer(data, np.uint8).astype(np.intp)
    shares, offsets = _position_tables()
    # The first block takes the remainder and is never short: the state is XORed into the first four bytes of a block.
    ends = range(len(data) - (len(data) - SHORT_BYTES) // BLOCK_BYTES * BLOCK_BYTES, len(data) + 1, BLOCK_BYTES)
    begin = 0
    for end in ends:
        block = values[begin:end]
        block[:4] ^= np.frombuffer(struct.pack("<I", state), np.uint8)
        state = int(np.bitwise_xor.reduce(shares.take(block + offsets[len(offsets) - len(block) :])))
        begin = end
    return state ^ 0xFFFFFFFF


@functools.cache
def _byte_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (CRC32C if byte & 1 else 0)
        table.append(byte)
    return table


@functools.cache
def _position_tables() -> tuple[Any, Any]:
    """Returns the CRC contribution of each byte value at each position from the end, and the offset per position."""
    table = np.array(_byte_table(), np.uint32)
    count = SHORT_BYTES + BLOCK_BYTES
    shares = np.empty((count, 256), np.uint32)
    shares[0] = table
    for position in range(1, count):
        before = shares[position - 1]
        shares[position] = table[before & 0xFF] ^ (before >> 8)
    return shares.reshape(-1), np.arange(count)[::-1] * 256


def _make_histogram(summary: Any) -> Any:
    """Returns a `histogram` that is fast for 32-bit floats and unchanged edges, and else calls TensorBoard's."""
    theirs = summary.histogram
    cached: list[FloatBins] = []

    def histogram(name: str, values: Any, bins: Any, max_bins: Any = None) -> Any:
        flat = summary.make_np(values)
        data = None
        if max_bins is None and flat.dtype == np.float32 and flat.size and isinstance(bins, list):
            if not cached or cached[0].edge_list is not bins:
                cached[:] = [FloatBins(bins)]
            data = _histogram_bytes(np.ascontiguousarray(flat).reshape(-1), cached[0])
        if data is None:
            return theirs(name, values, bins, max_bins)
        histo = summary.HistogramProto.FromString(data)
        return summary.Summary(value=[summary.Summary.Value(tag=name, histo=histo)])

    return histogram


def _histogram_bytes(values: Any, bins: FloatBins) -> bytes | None:
    """Encodes a HistogramProto, with number lists as raw memory; None for input that TensorBoard has to handle."""
    exact = values.astype(np.float64)
    low, high = float(exact.min()), float(exact.max())
    if not (bins.is_simple and np.isfinite(low) and np.isfinite(high)):
        return None
    counts = bins.counts(values)
    filled = np.flatnonzero(counts)
    if not len(filled):
        return None
    first, end = int(filled[0]), int(filled[-1]) + 1
    shown = counts[first - 1 : end] if first else np.concatenate([[0], counts[:end]])
    numbers = low, high, float(len(exact)), float(exact.sum()), float(exact.dot(exact))
    fields = [bytes([number << 3 | 1]) + struct.pack("<d", value) for number, value in enumerate(numbers, 1)]
    return b"".join([*fields, _pack_doubles(6, bins.edges[first : end + 1]), _pack_doubles(7, shown)])


def _pack_doubles(number: int, values: Any) -> bytes:
    """Encodes a packed repeated double field of a protocol buffer."""
    data: bytes = values.astype("<f8").tobytes()
    size, length = len(data), bytearray()
    while size >= 128:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + data


class FloatBins:
    """Counts 32-bit floats per bin without sorting them, unlike `numpy.histogram`.

    The upper 16 bits of a float are its cell. All numbers of a cell fall into one bin, or into two adjacent ones: two
    table lookups and one comparison give the bin.
    """

    def __init__(self, edges: list[float]) -> None:
        self.edge_list = edges
        self.edges = np.asarray(edges, np.float64)
        low, high, inner = _bin_tables(self.edges)
        self.is_simple = bool(np.all(self.edges[1:] >= self.edges[:-1]) and np.all(high - low <= 1))
        self._low = low
        self._inner = inner
        self._cell, self._bin = np.empty(BLOCK_VALUES, np.intp), np.empty(BLOCK_VALUES, np.intp)
        self._edge, self._above = np.empty(BLOCK_VALUES, np.float32), np.empty(BLOCK_VALUES, np.bool_)

    def counts(self, values: Any) -> Any:
        """Returns how many values lie between each edge and the next. All values must be finite."""
        upper_half = values.view(np.uint16)[1::2]
        sums = np.zeros(len(self.edges) + 1, np.intp)
        for begin in range(0, len(values), BLOCK_VALUES):
            size = min(BLOCK_VALUES, len(values) - begin)
            cell, bin_, edge, above = (x[:size] for x in (self._cell, self._bin, self._edge, self._above))
            cell[:] = upper_half[begin : begin + size]
            self._inner.take(cell, out=edge, mode="clip")  # nothing is clipped, but numpy then writes directly to `out`
            np.greater_equal(values[begin : begin + size], edge, out=above)
            self._low.take(cell, out=bin_, mode="clip")
            np.add(bin_, above, out=bin_)
            sums += np.bincount(bin_, minlength=len(sums))
        return sums[1:-1]


def _bin_tables(edges: Any) -> tuple[Any, Any, Any]:
    """Returns per cell the bins of its lowest and highest number, and the smallest number of the higher bin."""
    edges = np.append(edges[:-1], np.nextafter(edges[-1], np.inf))  # the last bin includes its upper edge
    cells = np.arange(CELLS, dtype=np.uint32) << 16
    with np.errstate(all="ignore"):  # cells with infinity and NaN are excluded below
        ends = np.stack([cells.view(np.float32), (cells | 0xFFFF).view(np.float32)]).astype(np.float64)
    low, high = (np.searchsorted(edges, end, "right") for end in (ends.min(0), ends.max(0)))
    high[~np.isfinite(ends).all(0)] = low[~np.isfinite(ends).all(0)]
    inner = edges[np.minimum(low, len(edges) - 1)].astype(np.float32)
    short = inner < edges[np.minimum(low, len(edges) - 1)]
    inner[short] = np.nextafter(inner[short], np.float32(np.inf))
    return low, high, np.where(high > low, inner, np.float32(np.inf))
