"""Which chunks and packs the checkpoints of a run consist of."""

from __future__ import annotations

from dataclasses import dataclass

from relive.errors import NotFound
from relive.store.chunks.chunk_store import Chunks
from relive.store.chunks.packs import Packs
from relive.store.chunks.references import ReferenceScanner
from relive.store.chunks.tombstones import list_kept_checkpoints
from relive.store.home import Home
from relive.store.journal import parse_run


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The number of checkpoints of a run, and the manifests and packs to copy to have them in another home."""

    count: int
    manifests: frozenset[str]
    packs: frozenset[str]


def list_checkpoint_files(home: Home, run: str) -> CheckpointFiles:
    """Returns the files of the kept checkpoints that are complete here; a shipped run may have left all elsewhere."""
    chunks, packs, scanner = Chunks(home.chunks), Packs(home.packs), ReferenceScanner(home)
    rows = [
        row for row in list_kept_checkpoints(home.run_folder(run), parse_run(home, run)) if row.manifest in chunks
    ]  # fmt: skip
    packs_by_manifest: dict[str, frozenset[str]] = {}
    with packs.read_lock():
        for manifest in {row.manifest for row in rows}:
            try:
                needed = frozenset(packs.find(piece).pack for piece in scanner.manifest_pieces(manifest))
            except NotFound:  # part of it has not arrived yet
                continue
            packs_by_manifest[manifest] = needed
    count = sum(row.manifest in packs_by_manifest for row in rows)
    return CheckpointFiles(count, frozenset(packs_by_manifest), frozenset().union(*packs_by_manifest.values()))
