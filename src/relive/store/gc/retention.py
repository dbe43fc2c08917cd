"""Which checkpoints to drop: each run keeps an even selection, and the oldest runs keep fewer when space is short."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from relive.errors import ReliveError
from relive.store.chunks import check_object_store_address

ALL = "all"
BEYOND_KEEP, BEYOND_BUDGET = "keep", "budget"
FLOORS = (2, 1, 0)  # runs are thinned to their middle and end; only if that is too much to their end, or to nothing
MIN_LIVE_RATIO = 0.5  # a pack of which less is needed is rewritten, and then takes up only what is needed
Key = TypeVar("Key")
Span = tuple[str, int, int]  # a pack, the number of a part of it, and the size of that part in bytes


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings `keep`, `budget_bytes` and `spool`."""

    keep: int | None = None  # checkpoints per run; None keeps all
    budget_bytes: int = 0  # of packs in the home; 0 is no limit
    spool: str = ""  # the object store for packs beyond the budget; without one, checkpoints are dropped instead

    @classmethod
    def from_settings(cls, keep: str, budget_bytes: int, spool: str = "") -> Policy:
        """Parses and validates the settings."""
        if keep != ALL and not (keep.isdecimal() and int(keep) > 0):
            raise ReliveError(f'keep = {keep!r} is not valid; write "{ALL}", or a number of at least 1')
        if budget_bytes < 0:
            raise ReliveError(f"budget_bytes = {budget_bytes} is not valid; write 0 for no limit, or a number of bytes")
        if spool:
            check_object_store_address(spool)
        return cls(None if keep == ALL else int(keep), budget_bytes, spool)

    @property
    def is_idle(self) -> bool:
        """Whether the policy drops and moves nothing."""
        return self.keep is None and not self.budget_bytes


@dataclass(frozen=True, slots=True)
class StoredCheckpoint(Generic[Key]):
    """A checkpoint of all ranks of a run; without spans, it takes up no space in the home."""

    key: Key
    time_us: int
    spans: frozenset[Span] = frozenset()


@dataclass(frozen=True, slots=True)
class RunCheckpoints(Generic[Key]):
    """The checkpoints of a run, in order of time."""

    run: str
    started_us: int
    used_us: int  # when something was last recorded in it
    checkpoints: tuple[StoredCheckpoint[Key], ...]
    is_pinned: bool = False
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Generic[Key]):
    """A checkpoint to drop, and the setting that requires it."""

    run: str
    key: Key
    reason: str


Kept = dict[str, tuple[StoredCheckpoint[Key], ...]]  # run → the checkpoints that it keeps


def plan_drops(runs: Sequence[RunCheckpoints[Key]], policy: Policy, pack_bytes: Mapping[str, int]) -> list[Drop[Key]]:
    """Returns the checkpoints to drop so that the policy holds, run by run; pinned runs keep everything."""
    kept: Kept[Key] = {run.run: run.checkpoints for run in runs}
    unpinned = [run for run in runs if not run.is_pinned]
    if policy.keep is not None:
        for run in unpinned:
            kept[run.run] = select_evenly(run, policy.keep)
    drops = _list_drops(runs, kept, BEYOND_KEEP)
    if policy.budget_bytes and not policy.spool:
        before = [replace(run, checkpoints=kept[run.run]) for run in runs]
        _fit_budget(unpinned, kept, policy.budget_bytes, PackUsage(pack_bytes))
        drops += _list_drops(before, kept, BEYOND_BUDGET)
    return drops


def _list_drops(runs: Iterable[RunCheckpoints[Key]], kept: Kept[Key], reason: str) -> list[Drop[Key]]:
    kept_ids = {id(checkpoint) for checkpoints in kept.values() for checkpoint in checkpoints}
    return [
        Drop(run.run, checkpoint.key, reason)
        for run in runs
        for checkpoint in run.checkpoints
        if id(checkpoint) not in kept_ids
    ]


# --- offload ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalPack:
    """A pack in the home: its size, when it was last used, and whether it has to stay."""

    name: str
    size_bytes: int
    used_us: int
    stays: bool = False


def plan_offload(packs: Iterable[LocalPack], budget_bytes: int) -> list[LocalPack]:
    """Returns the packs to move out, least recently used first, until the rest fits the budget."""
    oldest_first = sorted(packs, key=lambda pack: (pack.used_us, pack.name))
    left_bytes = sum(pack.size_bytes for pack in oldest_first)
    moves: list[LocalPack] = []
    for pack in oldest_first:
        if left_bytes <= budget_bytes:
            break
        if not pack.stays:
            moves.append(pack)
            left_bytes -= pack.size_bytes
    return moves


# --- even selection ---------------------------------------------------------------------------------------------------


def select_evenly(run: RunCheckpoints[Key], count: int) -> tuple[StoredCheckpoint[Key], ...]:
    """Returns `count` checkpoints of a run, spread evenly over its time; the last one is always among them."""
    times = [checkpoint.time_us for checkpoint in run.checkpoints]
    return tuple(run.checkpoints[at] for at in even_positions(times, run.started_us, count))


def even_positions(times: Sequence[int], start: int, count: int) -> list[int]:
    """Returns the positions of `count` ascending times that divide the time since start as evenly as possible.

    Each is the time nearest to its share of the way from start to the last time; no time is taken twice.
    """
    if count >= len(times):
        return list(range(len(times)))
    positions: list[int] = []
    end = len(times)
    for share in range(count, 0, -1):
        ideal = start + (times[-1] - start) * share / count
        # The remaining shares need as many times below, and the times above are taken.
        end = _nearest(times, ideal, share - 1, end)
        positions.append(end)
    return positions[::-1]


def _nearest(times: Sequence[int], ideal: float, low: int, high: int) -> int:
    """Returns the position in [low, high) of the nearest time; of two equally near ones, the later."""
    after = bisect_right(times, ideal, low, high)
    below, above = max(after - 1, low), min(after, high - 1)
    return below if ideal - times[below] < times[above] - ideal else above


# --- budget -----------------------------------------------------------------------------------------------------------


class PackUsage:
    """Counts the bytes of packs that remain when only some checkpoints are kept."""

    def __init__(self, pack_bytes: Mapping[str, int]) -> None:
        self._pack_bytes = pack_bytes
        self._span_users: Counter[Span] = Counter()
        self._live_bytes: Counter[str] = Counter()
        self.total_bytes = 0

    def add(self, checkpoints: Iterable[StoredCheckpoint[Key]]) -> None:
        for span in (span for checkpoint in checkpoints for span in checkpoint.spans):
            self._span_users[span] += 1
            if self._span_users[span] == 1:
                self._change(span[0], span[2])

    def remove(self, checkpoints: Iterable[StoredCheckpoint[Key]]) -> None:
        for span in (span for checkpoint in checkpoints for span in checkpoint.spans):
            self._span_users[span] -= 1
            if not self._span_users[span]:
                self._change(span[0], -span[2])

    def _change(self, pack: str, by_bytes: int) -> None:
        self.total_bytes -= self._bytes_on_disk(pack)
        self._live_bytes[pack] += by_bytes
        self.total_bytes += self._bytes_on_disk(pack)

    def _bytes_on_disk(self, pack: str) -> int:
        """Returns the size of a pack after the collection, which rewrites sparse packs."""
        live = self._live_bytes[pack]
        whole = self._pack_bytes.get(pack, live)
        return live if live < MIN_LIVE_RATIO * whole else whole


def _fit_budget(unpinned: Sequence[RunCheckpoints[Key]], kept: Kept[Key], budget_bytes: int, usage: PackUsage) -> None:
    """Thins the runs, least recently used first, until what they keep fits the budget; updates `kept`."""
    for checkpoints in kept.values():
        usage.add(checkpoints)
    oldest_first = sorted(unpinned, key=lambda run: (run.used_us, run.run))
    for floor in FLOORS:
        for run in oldest_first:
            if usage.total_bytes <= budget_bytes:
                return
            least = max(floor, 1) if run.is_live else floor  # a live run must be able to resume after a crash
            # Dropping offloaded checkpoints would free no space here.
            offloaded = tuple(checkpoint for checkpoint in kept[run.run] if not checkpoint.spans)
            local = tuple(checkpoint for checkpoint in kept[run.run] if checkpoint.spans)
            thinned = _thin(replace(run, checkpoints=local), least, budget_bytes, usage)
            kept[run.run] = tuple(sorted(offloaded + thinned, key=lambda checkpoint: checkpoint.time_us))


def _thin(
    run: RunCheckpoints[Key], least: int, budget_bytes: int, usage: PackUsage
) -> tuple[StoredCheckpoint[Key], ...]:
    """Returns as many of a run's checkpoints as fit, but at least `least`; keeps `usage` up to date."""
    low, high = min(least, len(run.checkpoints)), len(run.checkpoints)
    usage.remove(run.checkpoints)
    while low < high:
        middle = (low + high + 1) // 2
        selected = select_evenly(run, middle)
        usage.add(selected)
        fits = usage.total_bytes <= budget_bytes
        usage.remove(selected)
        low, high = (middle, high) if fits else (low, middle - 1)
    kept = select_evenly(run, low)
    usage.add(kept)
    return kept
