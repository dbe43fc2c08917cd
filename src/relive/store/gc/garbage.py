"""How space is freed: checkpoints beyond the policy are given up, then what nothing names any more is removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relive.errors import Damaged, NotFound, ReliveError, StorageAway
from relive.store.catalog import Index, RunEntry
from relive.store.chunks import (
    CheckpointRow,
    Chunks,
    Doubt,
    Packs,
    Piece,
    References,
    ReferenceScanner,
    Where,
    drop,
    note_of,
)
from relive.store.gc.offload import Offloader, remove_retired, retire, retired
from relive.store.gc.pins import is_pinned
from relive.store.gc.repack_plan import PackPlan, copied, needed_by_pack, pack_sizes, plan_packs, spans_of
from relive.store.gc.retention import (
    BEYOND_BUDGET,
    BEYOND_KEEP,
    Drop,
    HeldCheckpoint,
    Policy,
    Resident,
    Span,
    Stock,
    plan_drops,
    plan_moves,
)
from relive.store.home import Home, JournalName
from relive.store.journal import to_text
from relive.store.registry import Registry

GRACE_S = 3600.0  # a chunk may be stored this long before a line names it
PATIENCE_S = 30.0  # for a moment in which nobody writes a checkpoint
CHECKPOINTS = {BEYOND_KEEP: "checkpoints beyond keep", BEYOND_BUDGET: "checkpoints beyond budget_bytes"}
UNNEEDED_PACKS = "packs that no checkpoint needs"
SPARSE_PACKS = "packs copied without what nobody needs"
MOVED_PACKS = "packs moved to the spool"
OUTSIDE_PACKS = "packs in the spool that no checkpoint needs"
CHUNKS = "chunks that nothing names"
LEFTOVERS = "leftovers of what was cut short"

_CHUNK = re.compile(r"[0-9a-f]{64}")
_LEFTOVERS = (
    ("runs", r"\.[0-9a-f]{12}"),  # of a `relive rm` that didn't finish
    ("chunks/[0-9a-f][0-9a-f]", r"\.[0-9a-f]{8}\.\d+\.\d+"),
    ("chunks/packs", r"\..+\.pack(\.spooled)?(\.partial)?"),
    ("index/segments*", r".+\.partial"),
)
_NO_PACKS = PackPlan({}, {}, 0)
Rows = tuple[CheckpointRow, ...]  # one checkpoint, on all the ranks that took it


@dataclass(frozen=True, slots=True)
class Claims:
    """What others than journals and the registry hold on to: runs whose checkpoints must stay, and chunks by name."""

    pinned: Callable[[str], bool] = lambda _run: False
    chunks: Callable[[], Iterable[str]] = tuple


_NO_CLAIMS = Claims()


@dataclass(frozen=True, slots=True)
class Tally:
    """How much goes for one reason."""

    reason: str
    count: int
    size_bytes: int = 0
    frees: bool = True  # room in the home


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What went, or would go; what can't be read, so that all it may name was kept; and what could not be done."""

    tallies: tuple[Tally, ...]
    doubts: tuple[Doubt, ...]
    troubles: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(tally.size_bytes for tally in self.tallies if tally.frees)


def preview_garbage(
    home: Home, policy: Policy, *, grace_s: float = GRACE_S, claims: Claims = _NO_CLAIMS
) -> GarbageReport:
    """What `collect_garbage` would do now. Changes nothing."""
    return _Collection(home, grace_s, claims).preview(policy)


def collect_garbage(
    home: Home, policy: Policy, *, grace_s: float = GRACE_S, claims: Claims = _NO_CLAIMS
) -> GarbageReport:
    """Apply the policy, and remove what nothing names. May run while runs are recorded, and be killed at any moment."""
    with _only_one(home):
        return _Collection(home, grace_s, claims).collect(policy)


class _Collection:
    """One round through a home."""

    def __init__(self, home: Home, grace_s: float, claims: Claims) -> None:
        self._home = home
        self._claims = claims
        self._before = time.time() - grace_s
        self._chunks = Chunks(home.chunks)
        self._packs = Packs(home.packs)
        self._registry = Registry(home)
        self._names = ReferenceScanner(home, lambda: {*claims.chunks(), *self._registry.held_chunks()})

    def preview(self, policy: Policy) -> GarbageReport:
        named = self._names.look()
        drops = self._drops(policy, named)
        after = self._names.look({_where(one.run, row) for one in drops for row in one.key})
        plan = self._pack_plan(after)
        moves = [one for one in self._moves(policy, after) if one.pack not in plan.unneeded]
        outside = [note.size_bytes for pack in plan.outside if (note := note_of(self._packs.folder, pack))]
        return GarbageReport(
            (
                *_tally_drops(drops),
                Tally(UNNEEDED_PACKS, len(plan.unneeded), sum(plan.unneeded.values())),
                Tally(SPARSE_PACKS, len(plan.sparse), plan.freed_bytes),
                _tally(MOVED_PACKS, [one.size_bytes for one in moves]),
                _tally(OUTSIDE_PACKS, outside, frees=False),
                _tally(CHUNKS, self._unnamed_chunks(after).values()),
                _tally(LEFTOVERS, self._leftovers().values()),
            ),
            tuple(named.doubts),
        )

    def collect(self, policy: Policy) -> GarbageReport:
        """Tombstones come first and are on disk before anything goes: whatever is still shown can be read."""
        drops = self._drops(policy, self._names.look())
        self._give_up(drops)
        named = self._names.look()
        chunks = [_remove_chunk(path, self._before) for path in self._unnamed_chunks(named)]
        leftovers = [_remove(path, size) for path, size in self._leftovers().items()]
        removed, copies = self._sweep_packs()
        moved: list[int] = []
        outside: list[int] = []
        troubles = [*self._trying(lambda: self._move(policy, moved)), *self._trying(lambda: self._let_go(outside))]
        return GarbageReport(
            (
                *_tally_drops(drops), _tally(UNNEEDED_PACKS, removed), _tally(SPARSE_PACKS, copies),
                _tally(MOVED_PACKS, moved), _tally(OUTSIDE_PACKS, outside, frees=False),
                _tally(CHUNKS, filter(None, chunks)), _tally(LEFTOVERS, leftovers),
            ),
            tuple(named.doubts),
            tuple(troubles),
        )  # fmt: skip

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _drops(self, policy: Policy, named: References) -> list[Drop[Rows]]:
        """In doubt nothing is given up: it wouldn't free any space either."""
        if policy.is_idle or named.doubts:
            return []
        sizes = pack_sizes(self._packs)
        pieces = {name: [one for one in its if one.pack in sizes] for name, its in named.pieces.items()}
        spans = spans_of(pieces) if policy.budget_bytes else dict.fromkeys(pieces, frozenset[Span]())
        return plan_drops(self._stocks(spans), policy, sizes)

    def _stocks(self, spans: Mapping[str, frozenset[Span]]) -> list[Stock[Rows]]:
        with contextlib.closing(Index(self._home)) as index:
            entries = index.runs()
            rows = index.checkpoints(entries)
        held = self._registry.held_runs()
        return [
            self._stock(entry, rows.get(entry.record.run, []), spans, is_held=entry.record.run in held)
            for entry in entries
        ]

    def _stock(
        self, entry: RunEntry, rows: list[CheckpointRow], spans: Mapping[str, frozenset[Span]], *, is_held: bool
    ) -> Stock[Rows]:
        run, is_live = entry.record.run, bool(entry.live)
        held = [
            HeldCheckpoint(ranks, ranks[0].time_us, frozenset().union(*(spans[row.manifest] for row in ranks)))
            for ranks in by_moment([row for row in rows if row.manifest in spans])
        ]
        stays = is_held or is_pinned(self._home.run_folder(run)) or self._claims.pinned(run)
        used_us = entry.record.ended_us or time.time_ns() // 1000
        ordered = tuple(sorted(held, key=lambda one: one.time_us))
        return Stock(run, entry.record.started_us, used_us, ordered, stays, is_live)

    def _give_up(self, drops: Iterable[Drop[Rows]]) -> None:
        by_run: dict[str, list[CheckpointRow]] = {}
        for one in drops:
            by_run.setdefault(one.run, []).extend(one.key)
        for run, rows in by_run.items():
            with contextlib.suppress(FileNotFoundError):  # the run was removed meanwhile
                drop(self._home.run_folder(run), rows)

    # --- packs --------------------------------------------------------------------------------------------------

    def _pack_plan(self, named: References) -> PackPlan:
        if named.doubts:
            return _NO_PACKS
        return plan_packs(_needed(named), pack_sizes(self._packs), self._packs.spooled())

    def _sweep_packs(self) -> tuple[list[int], list[int]]:
        """Remove and copy packs; gives the bytes freed by each. Writers wait only while it looks a second time."""
        plan = self._pack_plan(self._names.look())
        if not plan.unneeded and not plan.sparse and not plan.outside:
            return [], []
        with self._packs.alone(patience_s=PATIENCE_S):
            plan = self._pack_plan(self._names.look())
            removed = [_remove(self._packs.folder / name, size) for name, size in plan.unneeded.items()]
            retire(self._packs.folder, plan.outside)
        copies = [self._copy(name, pieces) for name, pieces in plan.sparse.items()]
        return removed, [freed for freed in copies if freed is not None]

    def _copy(self, old: str, pieces: Sequence[Piece]) -> int | None:
        """Put a copy of the needed pieces in the place of a pack, unless more of it is needed by now."""
        try:
            new = copied(self._packs, pieces)
        except (OSError, NotFound, Damaged):  # a full disk, or a damaged pack: the old one is the best there is
            return None
        have = {(piece.digest, piece.size_bytes) for piece in pieces}
        with self._packs.alone(patience_s=PATIENCE_S):
            named, sizes = self._names.look(), pack_sizes(self._packs)
            still = _needed(named).get(old, {}).values()
            if named.doubts or not have.issuperset((piece.digest, piece.size_bytes) for piece in still):
                return None
            return _remove(self._packs.folder / old, sizes[old] - sizes[new])

    # --- the spool ----------------------------------------------------------------------------------------------

    def _moves(self, policy: Policy, named: References) -> list[Resident]:
        """Which packs have to leave the home. In doubt none: it can't be told whose they are."""
        sizes = pack_sizes(self._packs)
        if not policy.spool or not policy.budget_bytes or named.doubts or sum(sizes.values()) <= policy.budget_bytes:
            return []
        stocks = self._stocks(dict.fromkeys(named.pieces, frozenset()))
        return plan_moves(residents(stocks, named.pieces, sizes, self._packs.last_used), policy.budget_bytes)

    def _move(self, policy: Policy, moved: list[int]) -> None:
        named = self._names.look()
        moves = self._moves(policy, named)
        if moves:
            remove = partial(self._remove_moved, _users(named))
            moved.extend(Offloader(self._home, policy.spool).move(moves, remove))

    def _remove_moved(self, users: Mapping[str, set[str]], sent: Sequence[Resident]) -> list[int]:
        """Those that nobody has begun to need while they were sent, and that are kept outside by now."""
        with self._packs.alone(patience_s=PATIENCE_S):
            now, outside = _users(self._names.look()), self._packs.spooled()
            going = [one for one in sent if one.pack in outside and now.get(one.pack, set()) <= users[one.pack]]
            return [_remove(self._packs.folder / one.pack, one.size_bytes) for one in going]

    def _let_go(self, outside: list[int]) -> None:
        if retired(self._packs.folder):
            outside.extend(remove_retired(self._home))

    def _trying(self, work: Callable[[], None]) -> list[str]:
        """What is done here counts, even if the spool is away; it is tried again the next time."""
        try:
            work()
        except StorageAway as error:
            return [str(error)]
        return []

    # --- chunks and leftovers -----------------------------------------------------------------------------------

    def _unnamed_chunks(self, named: References) -> dict[Path, int]:
        if named.doubts:
            return {}
        unnamed = (name for name in self._chunks.names() if _CHUNK.fullmatch(name) and name not in named.chunks)
        return _old(map(self._chunks.path, unnamed), self._before)

    def _leftovers(self) -> dict[Path, int]:
        found = (
            path
            for folders, pattern in _LEFTOVERS
            for folder in self._home.path.glob(folders)
            for path in folder.iterdir()
            if re.fullmatch(pattern, path.name)
        )
        return _old(found, self._before)


@contextlib.contextmanager
def _only_one(home: Home) -> Iterator[None]:
    home.chunks.mkdir(parents=True, exist_ok=True)
    with (home.chunks / "gc.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReliveError(f"another `relive gc` is at work in {home.path}; let it finish") from None
        yield


def by_moment(rows: Iterable[CheckpointRow]) -> list[Rows]:
    """Checkpoints of one moment together: ranks take theirs at the same place, and need each other's."""
    seen: Counter[tuple[JournalName, str]] = Counter()
    found: dict[tuple[str, int], list[CheckpointRow]] = {}
    for row in rows:
        place = to_text([row.place, row.name, row.at, row.iterations])
        nth = seen[row.journal, place] = seen[row.journal, place] + 1  # a loop may be entered twice
        found.setdefault((place, nth), []).append(row)
    return [tuple(ranks) for ranks in found.values()]


def residents(
    stocks: Iterable[Stock[Rows]], pieces: Mapping[str, Iterable[Piece]], sizes: Mapping[str, int],
    last_used: Callable[[str], int],
) -> list[Resident]:  # fmt: skip
    """The packs of a home, each as young as the youngest checkpoint that needs it, or as its last reading.

    One that a pinned, promoted or live run needs stays, and so does one that nobody is known to need.
    """
    used_us: dict[str, int] = {}
    staying: set[str] = set()
    for stock in stocks:
        for held in stock.held:
            packs = {piece.pack for row in held.key for piece in pieces[row.manifest]}
            staying |= packs if stock.is_pinned or stock.is_live else set()
            used_us |= {pack: max(held.time_us, used_us.get(pack, 0)) for pack in packs}
    return [
        Resident(pack, size, max(used_us.get(pack, 0), last_used(pack)), pack in staying or pack not in used_us)
        for pack, size in sizes.items()
    ]


def _users(named: References) -> dict[str, set[str]]:
    """For each pack the checkpoints that need something of it."""
    users: dict[str, set[str]] = {}
    for manifest, pieces in named.pieces.items():
        for piece in pieces:
            users.setdefault(piece.pack, set()).add(manifest)
    return users


def _needed(named: References) -> dict[str, dict[int, Piece]]:
    return needed_by_pack(piece for pieces in named.pieces.values() for piece in pieces)


def _where(run: str, row: CheckpointRow) -> Where:
    return run, row.journal.stem, row.seq


def _tally_drops(drops: Iterable[Drop[Rows]]) -> list[Tally]:
    counts = Counter(dict.fromkeys(CHECKPOINTS, 0))
    for one in drops:
        counts[one.reason] += len(one.key)
    return [Tally(CHECKPOINTS[reason], count) for reason, count in counts.items()]


def _tally(reason: str, sizes: Iterable[int], *, frees: bool = True) -> Tally:
    listed = list(sizes)
    return Tally(reason, len(listed), sum(listed), frees)


def _old(paths: Iterable[Path], before: float) -> dict[Path, int]:
    """Those that were last written before a time, with their sizes."""
    found: dict[Path, int] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            facts = path.lstat()
            if facts.st_mtime < before:
                inside = path.rglob("*") if path.is_dir() else ()
                found[path] = facts.st_size + sum(inner.lstat().st_size for inner in inside)
    return found


def _remove(path: Path, size_bytes: int) -> int:
    """Remove a file or folder; gives how many bytes that freed."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return size_bytes


def _remove_chunk(path: Path, before: float) -> int | None:
    """Remove a chunk, unless somebody stores the same bytes just now."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            facts = os.fstat(file.fileno())
            if facts.st_mtime >= before or facts.st_ino != path.stat().st_ino:
                return None
            path.unlink()
            return facts.st_size
    except (FileNotFoundError, BlockingIOError):
        return None
