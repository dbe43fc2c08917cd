"""Which chunks and packs the checkpoints of a run consist of."""

from __future__ import annotations

from dataclasses import dataclass

from relive.errors import NotFound
from relive.store.chunks.chunk_store import Chunks
from relive.store.chunks.packs import Packs
from relive.store.chunks.references import ReferenceScanner
from relive.store.chunks.tombstones import kept_checkpoints
from relive.store.home import Home
from relive.store.journal import parse_run


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """What to copy to have the checkpoints of a run elsewhere, and how many they are."""

    count: int
    manifests: frozenset[str]
    packs: frozenset[str]


def list_checkpoint_files(home: Home, run: str) -> CheckpointFiles:
    """Those of the checkpoints that are kept and whole here; of a run that was sent, all of them may be elsewhere."""
    chunks, packs, names = Chunks(home.chunks), Packs(home.packs), ReferenceScanner(home)
    rows = [
        row for row in kept_checkpoints(home.run_folder(run), parse_run(home, run)) if row.manifest in chunks
    ]  # fmt: skip
    found: dict[str, frozenset[str]] = {}
    with packs.reading():
        for manifest in {row.manifest for row in rows}:
            try:
                found[manifest] = frozenset(packs.find(piece).pack for piece in names.manifest_pieces(manifest))
            except NotFound:  # some of it is still on its way
                continue
    count = sum(row.manifest in found for row in rows)
    return CheckpointFiles(count, frozenset(found), frozenset().union(*found.values()))
