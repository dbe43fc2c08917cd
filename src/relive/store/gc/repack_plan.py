"""Which packs are needed, and how much of each: one that holds little of use is copied without the rest."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from relive.store.chunks import Packs, PackWriter, Piece
from relive.store.gc.retention import WORTH_REWRITING, Span


@dataclass(frozen=True, slots=True)
class PackPlan:
    """What to do with packs."""

    unneeded: dict[str, int]  # name → bytes
    sparse: dict[str, tuple[Piece, ...]]  # name → the pieces that are needed of it
    freed_bytes: int  # by copying the sparse ones
    outside: frozenset[str] = frozenset()  # kept outside the home, and not needed


def pack_sizes(packs: Packs) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in packs.names():
        with contextlib.suppress(FileNotFoundError):  # collected just now
            sizes[name] = (packs.folder / name).stat().st_size
    return sizes


def needed_by_pack(pieces: Iterable[Piece]) -> dict[str, dict[int, Piece]]:
    """Pieces by pack and offset."""
    needed: dict[str, dict[int, Piece]] = {}
    for piece in pieces:
        needed.setdefault(piece.pack, {})[piece.offset] = piece
    return needed


def plan_packs(
    needed: Mapping[str, Mapping[int, Piece]], sizes: Mapping[str, int], spooled: Collection[str] = ()
) -> PackPlan:
    """Packs without a needed piece go; those of which less than half is needed are copied.

    One that is kept outside as well needs no copy: it makes room here as soon as room is needed.
    """
    unneeded = {name: size for name, size in sizes.items() if name not in needed}
    live_bytes = {name: sum(piece.stored_bytes for piece in pieces.values()) for name, pieces in needed.items()}
    candidates = (name for name in live_bytes if name not in spooled)
    sparse = [name for name in candidates if live_bytes[name] < WORTH_REWRITING * sizes.get(name, 0)]
    freed = sum(sizes[name] - live_bytes[name] for name in sparse)
    outside = frozenset(name for name in spooled if name not in needed)
    return PackPlan(unneeded, {name: tuple(needed[name].values()) for name in sparse}, freed, outside)


def spans_of(pieces: Mapping[str, Iterable[Piece]]) -> dict[str, frozenset[Span]]:
    """The parts of packs that each checkpoint needs. Pieces that the same ones need are one part: millions are few."""
    users: dict[tuple[str, int, int], list[str]] = {}
    for manifest, its in pieces.items():
        for piece in its:
            users.setdefault((piece.pack, piece.offset, piece.stored_bytes), []).append(manifest)
    part_bytes: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for (pack, _, stored_bytes), its_users in users.items():
        part_bytes[pack, tuple(its_users)] += stored_bytes
    spans: dict[str, set[Span]] = {manifest: set() for manifest in pieces}
    for number, ((pack, manifests), size_bytes) in enumerate(part_bytes.items()):
        for manifest in manifests:
            spans[manifest].add((pack, number, size_bytes))
    return {manifest: frozenset(its) for manifest, its in spans.items()}


def copied(packs: Packs, pieces: Iterable[Piece]) -> str:
    """Copy pieces to a new pack, checking each; gives its name. When the old one is gone, hashes lead to this one."""
    with PackWriter(packs) as pack:
        for piece in pieces:
            pack.add(packs.read(piece), piece.digest)
    return pack.name
