"""Which packs to remove or rewrite, from the pieces that are needed: a sparse pack is copied without the rest."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from relive.store.chunks import Packs, PackWriter, Piece
from relive.store.gc.retention import MIN_LIVE_RATIO, Span


@dataclass(frozen=True, slots=True)
class PackPlan:
    """What to do with the packs of a home."""

    unneeded: dict[str, int]  # name → bytes
    sparse: dict[str, tuple[Piece, ...]]  # name → the pieces of it that are needed
    freed_bytes: int  # by copying the sparse ones
    outside: frozenset[str] = frozenset()  # offloaded and not needed


def pack_sizes(packs: Packs) -> dict[str, int]:
    """Returns the packs in the home with their sizes in bytes."""
    sizes: dict[str, int] = {}
    for name in packs.names():
        with contextlib.suppress(FileNotFoundError):  # just removed
            sizes[name] = (packs.folder / name).stat().st_size
    return sizes


def needed_by_pack(pieces: Iterable[Piece]) -> dict[str, dict[int, Piece]]:
    """Groups pieces by pack and offset."""
    needed: dict[str, dict[int, Piece]] = {}
    for piece in pieces:
        needed.setdefault(piece.pack, {})[piece.offset] = piece
    return needed


def plan_packs(
    needed: Mapping[str, Mapping[int, Piece]], sizes: Mapping[str, int], offloaded: Collection[str] = ()
) -> PackPlan:
    """Plans to remove packs without a needed piece and to copy those of which less than half is needed.

    An offloaded pack is not copied: its local file is removed as soon as space is needed.
    """
    unneeded = {name: size for name, size in sizes.items() if name not in needed}
    live_bytes = {name: sum(piece.stored_bytes for piece in pieces.values()) for name, pieces in needed.items()}
    local_only = (name for name in live_bytes if name not in offloaded)
    sparse = [name for name in local_only if live_bytes[name] < MIN_LIVE_RATIO * sizes.get(name, 0)]
    freed_bytes = sum(sizes[name] - live_bytes[name] for name in sparse)
    outside = frozenset(name for name in offloaded if name not in needed)
    return PackPlan(unneeded, {name: tuple(needed[name].values()) for name in sparse}, freed_bytes, outside)


def spans_by_manifest(pieces: Mapping[str, Iterable[Piece]]) -> dict[str, frozenset[Span]]:
    """Returns the spans of packs that each checkpoint needs.

    Pieces of a pack that the same checkpoints need form one span, which turns millions of pieces into few spans.
    """
    users: dict[tuple[str, int, int], list[str]] = {}
    for manifest, needed in pieces.items():
        for piece in needed:
            users.setdefault((piece.pack, piece.offset, piece.stored_bytes), []).append(manifest)
    span_bytes: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for (pack, _, stored_bytes), manifests in users.items():
        span_bytes[pack, tuple(manifests)] += stored_bytes
    spans: dict[str, set[Span]] = {manifest: set() for manifest in pieces}
    for number, ((pack, needed_by), size_bytes) in enumerate(span_bytes.items()):
        for manifest in needed_by:
            spans[manifest].add((pack, number, size_bytes))
    return {manifest: frozenset(needed) for manifest, needed in spans.items()}


def copy_pieces(packs: Packs, pieces: Iterable[Piece]) -> str:
    """Copies and verifies pieces into a new pack; returns its name. Readers find moved pieces by their hash."""
    with PackWriter(packs) as pack:
        for piece in pieces:
            pack.add(packs.read(piece), piece.digest)
    return pack.name
