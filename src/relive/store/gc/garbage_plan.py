"""What a collection would remove, by reason: a survey of a home that changes nothing."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.store.catalog import Index, RunEntry
from relive.store.chunks import (
    CheckpointKey,
    CheckpointRow,
    Chunks,
    Doubt,
    Packs,
    Piece,
    References,
    ReferenceScanner,
    find_note,
    is_digest,
)
from relive.store.durable_files import PARTIAL_PATTERN
from relive.store.gc.pins import is_pinned
from relive.store.gc.repack_plan import PackPlan, needed_by_pack, pack_sizes, plan_packs, spans_by_manifest
from relive.store.gc.retention import (
    BEYOND_BUDGET,
    BEYOND_KEEP,
    Drop,
    LocalPack,
    Policy,
    RunCheckpoints,
    Span,
    StoredCheckpoint,
    plan_drops,
    plan_offload,
)
from relive.store.home import Home, JournalName
from relive.store.journal import to_json
from relive.store.registry import Registry

GRACE_S = 3600.0  # a chunk may be stored this long before a line names it
CHECKPOINTS = {BEYOND_KEEP: "checkpoints beyond keep", BEYOND_BUDGET: "checkpoints beyond budget_bytes"}
UNNEEDED_PACKS = "packs that no checkpoint needs"
SPARSE_PACKS = "packs copied without what nobody needs"
MOVED_PACKS = "packs moved to the spool"
OUTSIDE_PACKS = "packs in the spool that no checkpoint needs"
CHUNKS = "chunks that nothing names"
LEFTOVERS = "leftovers of what was cut short"

_PARTIAL_FOLDERS = ("", "runs", "runs/[0-9a-f]*", "chunks/[0-9a-f][0-9a-f]", "chunks/packs", "pins", "fits")
_LEFTOVERS = (  # folders, and the names of temporary files and folders in them
    ("runs", r"\.[0-9a-f]{12}"),  # of a `relive rm` that didn't finish
    ("chunks/[0-9a-f][0-9a-f]", r"\.[0-9a-f]{8}\.\d+\.\d+"),
    ("chunks/packs", r"\..+\.pack(\.spooled)?(\.partial)?"),
    ("index/segments*", r".+\.partial"),
    ("runs/[0-9a-f]*", r"(check\.json|[\w-]+)\.part"),  # before temporary names had one form
    *((folders, PARTIAL_PATTERN) for folders in _PARTIAL_FOLDERS),
)
_NO_PACKS = PackPlan({}, {}, 0)
RankRows = tuple[CheckpointRow, ...]  # one checkpoint, on all the ranks that took it


@dataclass(frozen=True, slots=True)
class Claims:
    """What is in use besides what journals and the registry name: runs that keep their checkpoints, and chunks."""

    pinned: Callable[[str], bool] = lambda _run: False
    chunks: Callable[[], Iterable[str]] = tuple


NO_CLAIMS = Claims()


@dataclass(frozen=True, slots=True)
class Tally:
    """How much is removed for one reason; `frees` is false when that frees no space in the home."""

    reason: str
    count: int
    size_bytes: int = 0
    frees: bool = True


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What was or would be removed; what could not be read, so that all it may name was kept; and what failed."""

    tallies: tuple[Tally, ...]
    doubts: tuple[Doubt, ...]
    failures: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(tally.size_bytes for tally in self.tallies if tally.frees)


def preview_garbage(
    home: Home, policy: Policy, *, grace_s: float = GRACE_S, claims: Claims = NO_CLAIMS
) -> GarbageReport:
    """Reports what `collect_garbage` would do now. Changes nothing."""
    survey = GarbageSurvey(home, grace_s, claims)
    before = survey.scan()
    drops = survey.drops(policy, before)
    after = survey.scan({_checkpoint_key(drop.run, row) for drop in drops for row in drop.key})
    plan = survey.pack_plan(after)
    moves = [pack for pack in survey.moves(policy, after) if pack.name not in plan.unneeded]
    outside = [note.size_bytes for pack in plan.outside if (note := find_note(home.packs, pack))]
    return GarbageReport(
        (
            *tally_drops(drops),
            Tally(UNNEEDED_PACKS, len(plan.unneeded), sum(plan.unneeded.values())),
            Tally(SPARSE_PACKS, len(plan.sparse), plan.freed_bytes),
            tally_sizes(MOVED_PACKS, [pack.size_bytes for pack in moves]),
            tally_sizes(OUTSIDE_PACKS, outside, frees=False),
            tally_sizes(CHUNKS, survey.unnamed_chunks(after).values()),
            tally_sizes(LEFTOVERS, survey.leftovers().values()),
        ),
        tuple(before.doubts),
    )


class GarbageSurvey:
    """Finds what may be removed from a home. While references are in doubt, nothing but leftovers may."""

    def __init__(self, home: Home, grace_s: float, claims: Claims) -> None:
        self._home = home
        self._claims = claims
        self.removable_before = time.time() - grace_s  # chunks and leftovers that are younger stay
        self._chunks = Chunks(home.chunks)
        self._packs = Packs(home.packs)
        self._registry = Registry(home)
        self._scanner = ReferenceScanner(home, lambda: {*claims.chunks(), *self._registry.promoted_chunks()})

    def scan(self, without: Iterable[CheckpointKey] = ()) -> References:
        """Returns what is referred to now; `without` leaves out checkpoints."""
        return self._scanner.scan(frozenset(without))

    def drops(self, policy: Policy, references: References) -> list[Drop[RankRows]]:
        """Returns the checkpoints that the policy drops; none in doubt, when that would not free any space."""
        if policy.is_idle or references.doubts:
            return []
        sizes = pack_sizes(self._packs)
        local = {name: [piece for piece in its if piece.pack in sizes] for name, its in references.pieces.items()}
        spans = spans_by_manifest(local) if policy.budget_bytes else dict.fromkeys(local, frozenset[Span]())
        return plan_drops(self._list_runs(spans), policy, sizes)

    def pack_plan(self, references: References) -> PackPlan:
        """Returns which packs to remove and which to rewrite."""
        if references.doubts:
            return _NO_PACKS
        return plan_packs(needed_pieces(references), pack_sizes(self._packs), self._packs.offloaded())

    def moves(self, policy: Policy, references: References) -> list[LocalPack]:
        """Returns the packs to offload; none in doubt, when it is unknown which runs need them."""
        sizes = pack_sizes(self._packs)
        in_doubt = bool(references.doubts)
        if not policy.spool or not policy.budget_bytes or in_doubt or sum(sizes.values()) <= policy.budget_bytes:
            return []
        runs = self._list_runs(dict.fromkeys(references.pieces, frozenset()))
        packs = local_packs(runs, references.pieces, sizes, self._packs.last_used)
        return plan_offload(packs, policy.budget_bytes)

    def unnamed_chunks(self, references: References) -> dict[Path, int]:
        """Returns the files of chunks that nothing refers to and that are old enough, with their sizes."""
        if references.doubts:
            return {}
        unnamed = (name for name in self._chunks.names() if is_digest(name) and name not in references.chunks)
        return _older_than(self.removable_before, map(self._chunks.path, unnamed))

    def leftovers(self) -> dict[Path, int]:
        """Returns the temporary files and folders of interrupted work that are old enough, with their sizes."""
        found = (
            path
            for folders, pattern in _LEFTOVERS
            for folder in (self._home.path.glob(folders) if folders else [self._home.path])
            if folder.is_dir()
            for path in folder.iterdir()
            if re.fullmatch(pattern, path.name)
        )
        return _older_than(self.removable_before, found)

    def _list_runs(self, spans: Mapping[str, frozenset[Span]]) -> list[RunCheckpoints[RankRows]]:
        """Returns the checkpoints of each run whose manifests are in `spans`."""
        with contextlib.closing(Index(self._home)) as index:
            entries = index.runs()
            rows = index.checkpoints(entries)
        promoted = self._registry.promoted_runs()
        return [
            self._list_run(entry, rows.get(entry.record.run, []), spans, is_promoted=entry.record.run in promoted)
            for entry in entries
        ]

    def _list_run(
        self, entry: RunEntry, rows: list[CheckpointRow], spans: Mapping[str, frozenset[Span]], *, is_promoted: bool
    ) -> RunCheckpoints[RankRows]:
        run, is_live = entry.record.run, bool(entry.live)
        checkpoints = [
            StoredCheckpoint(ranks, ranks[0].time_us, frozenset().union(*(spans[row.manifest] for row in ranks)))
            for ranks in group_ranks([row for row in rows if row.manifest in spans])
        ]
        stays = is_promoted or is_pinned(self._home.run_folder(run)) or self._claims.pinned(run)
        used_us = entry.record.ended_us or time.time_ns() // 1000
        in_order = tuple(sorted(checkpoints, key=lambda checkpoint: checkpoint.time_us))
        return RunCheckpoints(run, entry.record.started_us, used_us, in_order, stays, is_live)


def group_ranks(rows: Iterable[CheckpointRow]) -> list[RankRows]:
    """Groups the checkpoints that ranks took at the same point of the program: they are only useful together."""
    seen: Counter[tuple[JournalName, str]] = Counter()
    groups: dict[tuple[str, int], list[CheckpointRow]] = {}
    for row in rows:
        place = to_json([row.place, row.name, row.at, row.iterations])
        nth = seen[row.journal, place] = seen[row.journal, place] + 1  # a loop may be entered twice
        groups.setdefault((place, nth), []).append(row)
    return [tuple(ranks) for ranks in groups.values()]


def local_packs(
    runs: Iterable[RunCheckpoints[RankRows]], pieces: Mapping[str, Iterable[Piece]], sizes: Mapping[str, int],
    last_used: Callable[[str], int],
) -> list[LocalPack]:  # fmt: skip
    """Returns the packs of a home; a pack's age is that of its youngest checkpoint or of its last read.

    A pack stays if a pinned, promoted or live run needs it, or if no checkpoint is known to need it.
    """
    used_us: dict[str, int] = {}
    staying: set[str] = set()
    for run in runs:
        for checkpoint in run.checkpoints:
            packs = {piece.pack for row in checkpoint.key for piece in pieces[row.manifest]}
            staying |= packs if run.is_pinned or run.is_live else set()
            used_us |= {pack: max(checkpoint.time_us, used_us.get(pack, 0)) for pack in packs}
    return [
        LocalPack(pack, size, max(used_us.get(pack, 0), last_used(pack)), pack in staying or pack not in used_us)
        for pack, size in sizes.items()
    ]


def needed_pieces(references: References) -> dict[str, dict[int, Piece]]:
    """Returns the pieces that kept checkpoints need, by pack and offset."""
    return needed_by_pack(piece for pieces in references.pieces.values() for piece in pieces)


def _checkpoint_key(run: str, row: CheckpointRow) -> CheckpointKey:
    return run, row.journal.stem, row.seq


def tally_drops(drops: Iterable[Drop[RankRows]]) -> list[Tally]:
    """Counts dropped checkpoints by reason; each rank counts."""
    counts = Counter(dict.fromkeys(CHECKPOINTS, 0))
    for drop in drops:
        counts[drop.reason] += len(drop.key)
    return [Tally(CHECKPOINTS[reason], count) for reason, count in counts.items()]


def tally_sizes(reason: str, sizes: Iterable[int], *, frees: bool = True) -> Tally:
    """Counts and adds up sizes."""
    listed = list(sizes)
    return Tally(reason, len(listed), sum(listed), frees)


def _older_than(time_s: float, paths: Iterable[Path]) -> dict[Path, int]:
    """Returns the paths that were last written before a time, with the bytes in or below them."""
    found: dict[Path, int] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if status.st_mtime < time_s:
                inside = path.rglob("*") if path.is_dir() else ()
                found[path] = status.st_size + sum(inner.lstat().st_size for inner in inside)
    return found
