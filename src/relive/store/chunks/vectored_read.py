"""Many pieces of packs read at once, straight to where they belong: what lies near each other on disk is one call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from relive.store.chunks.packs import PLAIN, Packs, Piece, check, unpack

READERS = 4
STRETCH_BYTES = 16 << 20
MOST_BUFFERS = 1_000  # the system takes 1,024 in one call
GAP_BYTES = 64 << 10  # reading over as much takes less time than another call
WORTH_SHARING_BYTES = 32 << 20
Wanted = tuple[Piece, Any]  # a piece, and the writable buffer of its size that it goes to
_place = attrgetter("pack", "offset")


@dataclass(slots=True)
class Stretch:
    """Pieces of one pack that are read in one call: into their targets, or aside if they are compressed."""

    start: int
    end: int = 0
    buffers: list[Any] = field(default_factory=list)
    pieces: list[tuple[Piece, Any]] = field(default_factory=list)  # each with the buffer it is read into

    def add(self, piece: Piece, target: Any) -> None:
        if piece.offset > self.end:
            self.buffers.append(bytearray(piece.offset - self.end))
        into = target if piece.codec == PLAIN else bytearray(piece.stored_bytes)
        self.buffers.append(into)
        self.pieces.append((piece, into))
        self.end = piece.offset + piece.stored_bytes


def read_pieces(packs: Packs, wanted: Iterable[Wanted]) -> None:
    """Fill all buffers, and check each piece."""
    targets: dict[Piece, list[Any]] = {}
    for piece, target in wanted:
        targets.setdefault(piece, []).append(target)
    in_order = sorted(targets, key=_place)
    jobs = stretches([(piece, targets[piece][0]) for piece in in_order])
    for name in {piece.pack for piece in in_order}:
        packs.mark_used(name)
    if sum(piece.size_bytes for piece in in_order) < WORTH_SHARING_BYTES:
        for job in jobs:
            _read(packs, job, targets)
        return
    with ThreadPoolExecutor(READERS) as pool:
        for done in [pool.submit(_read, packs, job, targets) for job in jobs]:
            done.result()


def stretches(in_order: Sequence[Wanted]) -> list[Stretch]:
    """Each is short enough for one call and for sharing the work."""
    found: list[Stretch] = []
    pack = ""
    for piece, target in in_order:
        if piece.pack != pack or not _fits(found[-1], piece):
            found.append(Stretch(piece.offset, piece.offset))
            pack = piece.pack
        found[-1].add(piece, target)
    return found


def _fits(stretch: Stretch, piece: Piece) -> bool:
    is_near = stretch.end <= piece.offset <= stretch.end + GAP_BYTES
    return is_near and stretch.end - stretch.start < STRETCH_BYTES and len(stretch.buffers) < MOST_BUFFERS


def _read(packs: Packs, stretch: Stretch, targets: dict[Piece, list[Any]]) -> None:
    if _read_at_once(packs, stretch):
        for piece, read in stretch.pieces:
            _deliver(piece, read, targets[piece])
    else:  # piece by piece: that finds what has moved, and tells what is wrong
        for piece, _ in stretch.pieces:
            for target in targets[piece]:
                packs.read_into(piece, target)


def _read_at_once(packs: Packs, stretch: Stretch) -> bool:
    try:
        fd = os.open(packs.folder / stretch.pieces[0][0].pack, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return os.preadv(fd, stretch.buffers, stretch.start) == stretch.end - stretch.start
    finally:
        os.close(fd)


def _deliver(piece: Piece, read: Any, targets: list[Any]) -> None:
    first, *others = targets
    if piece.codec != PLAIN:
        unpack(read, first, piece)
    check(first, piece)
    for other in others:
        memoryview(other)[:] = first
