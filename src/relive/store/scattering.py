"""Many pieces of packs read at once, straight to where they belong: side by side on disk is one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from relive.store.packs import PLAIN, Packs, Piece, digest_of

READERS = 4
STRETCH_BYTES = 16 << 20
MOST_BUFFERS = 512  # the system takes 1,024 in one call
WORTH_SHARING_BYTES = 16 << 20
Wanted = tuple[Piece, Any]  # a piece, and the writable buffer of its size that it goes to


def read_all(packs: Packs, wanted: Sequence[Wanted]) -> None:
    """Fill all buffers, and check each piece."""
    in_order = sorted(wanted, key=lambda pair: (pair[0].pack, pair[0].offset))
    jobs = stretches(in_order)
    if sum(piece.size_bytes for piece, _ in wanted) < WORTH_SHARING_BYTES:
        for job in jobs:
            _read(packs, job)
        return
    with ThreadPoolExecutor(READERS) as pool:
        for done in [pool.submit(_read, packs, job) for job in jobs]:
            done.result()


def stretches(in_order: Sequence[Wanted]) -> list[list[Wanted]]:
    """Pieces that follow each other in a pack, as they are; each short enough for one call and for sharing the work."""
    found: list[list[Wanted]] = []
    size = 0
    for piece, buffer in in_order:
        if not found or not _follows(found[-1][-1][0], piece) or size > STRETCH_BYTES or len(found[-1]) >= MOST_BUFFERS:
            found.append([])
            size = 0
        found[-1].append((piece, buffer))
        size += piece.size_bytes
    return found


def _follows(before: Piece, piece: Piece) -> bool:
    beside = (before.pack, before.offset + before.stored_bytes) == (piece.pack, piece.offset)
    return beside and before.codec == piece.codec == PLAIN


def _read(packs: Packs, stretch: list[Wanted]) -> None:
    if not _read_at_once(packs, stretch):
        for piece, buffer in stretch:
            packs.read_into(piece, buffer)


def _read_at_once(packs: Packs, stretch: list[Wanted]) -> bool:
    """One call for all, then the hashes; False when anything is unusual: piece by piece tells what."""
    first = stretch[0][0]
    try:
        fd = os.open(packs.folder / first.pack, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        count = os.preadv(fd, [memoryview(buffer) for _, buffer in stretch], first.offset)
    finally:
        os.close(fd)
    if first.codec != PLAIN or count != sum(piece.size_bytes for piece, _ in stretch):
        return False
    return all(digest_of(buffer) == piece.digest for piece, buffer in stretch)
