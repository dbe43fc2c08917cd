"""Reads many pieces of packs straight into their buffers: neighbours on disk share one system call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from relive.store.chunks.packs import PLAIN, Packs, Piece, decompress_into, verify

READER_THREADS = 4
MAX_READ_BYTES = 16 << 20
MAX_BUFFERS = 1_000  # the system takes 1,024 in one call
MAX_GAP_BYTES = 64 << 10  # reading and discarding a gap of this size is faster than another call
MIN_THREADED_BYTES = 32 << 20
PieceTarget = tuple[Piece, Any]  # a piece, and the writable buffer of its size that receives it
_position = attrgetter("pack", "offset")


@dataclass(slots=True)
class CoalescedRead:
    """Pieces of one pack that are read in one call: into their targets, or into a scratch buffer if compressed."""

    start: int
    end: int = 0
    buffers: list[Any] = field(default_factory=list)
    pieces: list[tuple[Piece, Any]] = field(default_factory=list)  # each with the buffer it is read into

    def add(self, piece: Piece, target: Any) -> None:
        if piece.offset > self.end:
            self.buffers.append(bytearray(piece.offset - self.end))
        buffer = target if piece.codec == PLAIN else bytearray(piece.stored_bytes)
        self.buffers.append(buffer)
        self.pieces.append((piece, buffer))
        self.end = piece.offset + piece.stored_bytes


def read_pieces(packs: Packs, wanted: Iterable[PieceTarget]) -> None:
    """Fills all buffers and verifies each piece."""
    targets: dict[Piece, list[Any]] = {}
    for piece, target in wanted:
        targets.setdefault(piece, []).append(target)
    in_order = sorted(targets, key=_position)
    reads = coalesce([(piece, targets[piece][0]) for piece in in_order])
    for name in {piece.pack for piece in in_order}:
        packs.mark_used(name)
    if sum(piece.size_bytes for piece in in_order) < MIN_THREADED_BYTES:
        for read in reads:
            _perform(packs, read, targets)
        return
    with ThreadPoolExecutor(READER_THREADS) as pool:
        for done in [pool.submit(_perform, packs, read, targets) for read in reads]:
            done.result()


def coalesce(in_order: Sequence[PieceTarget]) -> list[CoalescedRead]:
    """Groups sorted pieces into reads that are short enough for one call and for sharing among threads."""
    reads: list[CoalescedRead] = []
    pack = ""
    for piece, target in in_order:
        if piece.pack != pack or not _fits(reads[-1], piece):
            reads.append(CoalescedRead(piece.offset, piece.offset))
            pack = piece.pack
        reads[-1].add(piece, target)
    return reads


def _fits(read: CoalescedRead, piece: Piece) -> bool:
    is_near = read.end <= piece.offset <= read.end + MAX_GAP_BYTES
    return is_near and read.end - read.start < MAX_READ_BYTES and len(read.buffers) < MAX_BUFFERS


def _perform(packs: Packs, read: CoalescedRead, targets: dict[Piece, list[Any]]) -> None:
    if _read_at_once(packs, read):
        for piece, buffer in read.pieces:
            _deliver(piece, buffer, targets[piece])
    else:  # piece by piece, which finds pieces that have moved and reports the one that is damaged
        for piece, _ in read.pieces:
            for target in targets[piece]:
                packs.read_into(piece, target)


def _read_at_once(packs: Packs, read: CoalescedRead) -> bool:
    """Whether all bytes were read; the pack may be gone or truncated."""
    try:
        fd = os.open(packs.folder / read.pieces[0][0].pack, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return os.preadv(fd, read.buffers, read.start) == read.end - read.start
    finally:
        os.close(fd)


def _deliver(piece: Piece, buffer: Any, targets: list[Any]) -> None:
    """Decodes and verifies a piece that was read, and copies it to its other targets."""
    first, *others = targets
    if piece.codec != PLAIN:
        decompress_into(buffer, first, piece)
    verify(first, piece)
    for other in others:
        memoryview(other)[:] = first
