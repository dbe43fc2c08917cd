"""Frees space: drops checkpoints beyond the policy, then removes or offloads what nothing refers to any more."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from relive.errors import Damaged, NotFound, ReliveError, StorageUnavailable
from relive.store.chunks import CheckpointRow, Packs, Piece, References, drop_checkpoints
from relive.store.gc.garbage_plan import (
    CHUNKS,
    GRACE_S,
    LEFTOVERS,
    MOVED_PACKS,
    NO_CLAIMS,
    OUTSIDE_PACKS,
    SPARSE_PACKS,
    UNNEEDED_PACKS,
    Claims,
    GarbageReport,
    GarbageSurvey,
    RankRows,
    needed_pieces,
    tally_drops,
    tally_sizes,
)
from relive.store.gc.offload import Offloader, list_retired, remove_retired, retire
from relive.store.gc.repack_plan import copy_pieces, pack_sizes
from relive.store.gc.retention import Drop, LocalPack, Policy
from relive.store.home import Home

PATIENCE_S = 30.0  # to wait for a moment in which no checkpoint is being written


def collect_garbage(
    home: Home, policy: Policy, *, grace_s: float = GRACE_S, claims: Claims = NO_CLAIMS
) -> GarbageReport:
    """Applies the policy and removes what nothing refers to. Safe while runs are recorded, and if killed any time."""
    with _lock_collection(home):
        return _Collector(home, GarbageSurvey(home, grace_s, claims)).collect(policy)


class _Collector:
    """Carries out one collection of a home."""

    def __init__(self, home: Home, survey: GarbageSurvey) -> None:
        self._home = home
        self._survey = survey
        self._packs = Packs(home.packs)

    def collect(self, policy: Policy) -> GarbageReport:
        """Writes tombstones before it removes anything, so that every checkpoint that is listed can be read."""
        drops = self._survey.drops(policy, self._survey.scan())
        self._drop(drops)
        references = self._survey.scan()
        before = self._survey.removable_before
        chunks = [_remove_chunk(path, before) for path in self._survey.unnamed_chunks(references)]
        leftovers = [_remove(path, size) for path, size in self._survey.leftovers().items()]
        removed, rewritten = self._sweep_packs()
        moved: list[int] = []
        outside: list[int] = []
        failures = [
            *_storage_errors(lambda: self._offload(policy, moved)),
            *_storage_errors(lambda: self._remove_offloaded(outside)),
        ]
        return GarbageReport(
            (
                *tally_drops(drops), tally_sizes(UNNEEDED_PACKS, removed), tally_sizes(SPARSE_PACKS, rewritten),
                tally_sizes(MOVED_PACKS, moved), tally_sizes(OUTSIDE_PACKS, outside, frees=False),
                tally_sizes(CHUNKS, filter(None, chunks)), tally_sizes(LEFTOVERS, leftovers),
            ),
            tuple(references.doubts),
            tuple(failures),
        )  # fmt: skip

    def _drop(self, drops: Iterable[Drop[RankRows]]) -> None:
        by_run: dict[str, list[CheckpointRow]] = {}
        for one in drops:
            by_run.setdefault(one.run, []).extend(one.key)
        for run, rows in by_run.items():
            with contextlib.suppress(FileNotFoundError):  # the run was removed meanwhile
                drop_checkpoints(self._home.run_folder(run), rows)

    # --- packs --------------------------------------------------------------------------------------------------

    def _sweep_packs(self) -> tuple[list[int], list[int]]:
        """Removes and rewrites packs; returns the bytes freed by each. Writers wait only during the second scan."""
        plan = self._survey.pack_plan(self._survey.scan())
        if not plan.unneeded and not plan.sparse and not plan.outside:
            return [], []
        with self._packs.exclusive_lock(patience_s=PATIENCE_S):
            plan = self._survey.pack_plan(self._survey.scan())
            removed = [_remove(self._packs.folder / name, size) for name, size in plan.unneeded.items()]
            retire(self._packs.folder, plan.outside)
        rewritten = [self._rewrite(name, pieces) for name, pieces in plan.sparse.items()]
        return removed, [freed for freed in rewritten if freed is not None]

    def _rewrite(self, old: str, pieces: Sequence[Piece]) -> int | None:
        """Replaces a pack by a copy of its needed pieces, unless more of it is needed by now; returns bytes freed."""
        try:
            new = copy_pieces(self._packs, pieces)
        except (OSError, NotFound, Damaged):  # a full disk or a damaged pack: the old one stays
            return None
        copied = {(piece.digest, piece.size_bytes) for piece in pieces}
        with self._packs.exclusive_lock(patience_s=PATIENCE_S):
            references, sizes = self._survey.scan(), pack_sizes(self._packs)
            needed = needed_pieces(references).get(old, {}).values()
            if references.doubts or not copied.issuperset((piece.digest, piece.size_bytes) for piece in needed):
                return None
            return _remove(self._packs.folder / old, sizes[old] - sizes[new])

    # --- offload ------------------------------------------------------------------------------------------------

    def _offload(self, policy: Policy, moved: list[int]) -> None:
        """Appends the size of each pack that was moved, so that they count even if a later one fails."""
        references = self._survey.scan()
        moves = self._survey.moves(policy, references)
        if moves:
            remove = partial(self._remove_sent, _manifests_by_pack(references))
            moved.extend(Offloader(self._home, policy.spool).move(moves, remove))

    def _remove_sent(self, manifests_before: Mapping[str, set[str]], sent: Sequence[LocalPack]) -> list[int]:
        """Removes the packs that have their note and that no further checkpoint needed while they were sent."""
        with self._packs.exclusive_lock(patience_s=PATIENCE_S):
            manifests, offloaded = _manifests_by_pack(self._survey.scan()), self._packs.offloaded()
            removable = [
                pack
                for pack in sent
                if pack.name in offloaded and manifests.get(pack.name, set()) <= manifests_before[pack.name]
            ]
            return [_remove(self._packs.folder / pack.name, pack.size_bytes) for pack in removable]

    def _remove_offloaded(self, outside: list[int]) -> None:
        if list_retired(self._packs.folder):
            outside.extend(remove_retired(self._home))


def _storage_errors(work: Callable[[], None]) -> list[str]:
    """Runs some work and returns the error if the object store is unavailable; the next collection tries again."""
    try:
        work()
    except StorageUnavailable as error:
        return [str(error)]
    return []


def _manifests_by_pack(references: References) -> dict[str, set[str]]:
    """Returns for each pack the checkpoints that need a piece of it."""
    manifests: dict[str, set[str]] = {}
    for manifest, pieces in references.pieces.items():
        for piece in pieces:
            manifests.setdefault(piece.pack, set()).add(manifest)
    return manifests


@contextlib.contextmanager
def _lock_collection(home: Home) -> Iterator[None]:
    """Locks out other collections of the home; raises `ReliveError` when one is running."""
    home.chunks.mkdir(parents=True, exist_ok=True)
    with (home.chunks / "gc.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReliveError(f"another `relive gc` is running in {home.path}; let it finish") from None
        yield


def _remove(path: Path, size_bytes: int) -> int:
    """Removes a file or folder; returns the bytes that this frees."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return size_bytes


def _remove_chunk(path: Path, before: float) -> int | None:
    """Removes a chunk and returns its size, unless the same bytes are being stored again right now."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(file.fileno())
            if status.st_mtime >= before or status.st_ino != path.stat().st_ino:
                return None
            path.unlink()
            return status.st_size
    except (FileNotFoundError, BlockingIOError):
        return None
