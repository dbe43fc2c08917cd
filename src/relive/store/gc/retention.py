"""Which checkpoints to give up: an even selection of each run's, and fewer of the oldest runs' when space is short."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from relive.errors import ReliveError
from relive.store.chunks import check_object_store_address

ALL = "all"
BEYOND_KEEP, BEYOND_BUDGET = "keep", "budget"
FLOORS = (2, 1, 0)  # a run keeps its middle and its end; only if that is still too much the end, or nothing
WORTH_REWRITING = 0.5  # a pack of which less than this is needed takes up only what is needed: it gets rewritten
Key = TypeVar("Key")
Span = tuple[str, int, int]  # a pack, which part of it, and how many bytes that is


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings `keep`, `budget_bytes` and `spool` ask for."""

    keep: int | None = None  # at most so many checkpoints a run
    budget_bytes: int = 0  # at most so many bytes of packs in the home; 0 is no bound
    spool: str = ""  # where the packs go that the budget has no room for; "" gives checkpoints up instead

    @classmethod
    def of(cls, keep: str, budget_bytes: int, spool: str = "") -> Policy:
        """From the settings as they are written."""
        if keep != ALL and not (keep.isdecimal() and int(keep) > 0):
            raise ReliveError(f'keep = {keep!r} means nothing here; write "{ALL}", or a number of at least 1')
        if budget_bytes < 0:
            raise ReliveError(f"budget_bytes = {budget_bytes} means nothing here; write 0 for no bound, or how many")
        if spool:
            check_object_store_address(spool)
        return cls(None if keep == ALL else int(keep), budget_bytes, spool)

    @property
    def is_idle(self) -> bool:
        return self.keep is None and not self.budget_bytes


@dataclass(frozen=True, slots=True)
class HeldCheckpoint(Generic[Key]):
    """A checkpoint as a planner sees it: the same moment on all ranks of a run."""

    key: Key
    time_us: int
    spans: frozenset[Span] = frozenset()


@dataclass(frozen=True, slots=True)
class Stock(Generic[Key]):
    """The checkpoints of a run, in the order of time."""

    run: str
    started_us: int
    used_us: int  # when something was last recorded in it
    held: tuple[HeldCheckpoint[Key], ...]
    is_pinned: bool = False
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Generic[Key]):
    """A checkpoint to give up, and which setting asks for it."""

    run: str
    key: Key
    reason: str


def plan_drops(stocks: Sequence[Stock[Key]], policy: Policy, pack_bytes: Mapping[str, int]) -> list[Drop[Key]]:
    """What has to go so that the policy holds, run by run; pinned runs keep everything."""
    kept = {stock.run: stock.held for stock in stocks}
    free = [stock for stock in stocks if not stock.is_pinned]
    if policy.keep is not None:
        for stock in free:
            kept[stock.run] = selected(stock, policy.keep)
    drops = _dropped(stocks, kept, BEYOND_KEEP)
    if policy.budget_bytes and not policy.spool:
        before = dict(kept)
        _fit(free, kept, policy.budget_bytes, Usage(pack_bytes))
        drops += _dropped([_with(stock, before[stock.run]) for stock in stocks], kept, BEYOND_BUDGET)
    return drops


def _with(stock: Stock[Key], held: tuple[HeldCheckpoint[Key], ...]) -> Stock[Key]:
    return Stock(stock.run, stock.started_us, stock.used_us, held, stock.is_pinned, stock.is_live)


def _dropped(
    stocks: Iterable[Stock[Key]], kept: Mapping[str, tuple[HeldCheckpoint[Key], ...]], reason: str
) -> list[Drop[Key]]:
    staying = {id(held) for its in kept.values() for held in its}
    return [Drop(stock.run, held.key, reason) for stock in stocks for held in stock.held if id(held) not in staying]


# --- moving out -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resident:
    """A pack in the home: how large it is, when it was last used, and whether it has to stay."""

    pack: str
    size_bytes: int
    used_us: int
    stays: bool = False


def plan_moves(residents: Iterable[Resident], budget_bytes: int) -> list[Resident]:
    """The packs to move out, those that were used longest ago first, until the rest fits the budget."""
    listed = sorted(residents, key=lambda one: (one.used_us, one.pack))
    left_bytes = sum(one.size_bytes for one in listed)
    moving: list[Resident] = []
    for one in listed:
        if left_bytes <= budget_bytes:
            break
        if not one.stays:
            moving.append(one)
            left_bytes -= one.size_bytes
    return moving


# --- an even selection ------------------------------------------------------------------------------------------------


def selected(stock: Stock[Key], count: int) -> tuple[HeldCheckpoint[Key], ...]:
    """So many checkpoints of a run, evenly over its time; the last one is among them, and with two the middle one."""
    return tuple(stock.held[at] for at in evenly([held.time_us for held in stock.held], stock.started_us, count))


def evenly(times: Sequence[int], start: int, count: int) -> list[int]:
    """The places of `count` of some ascending times, so that start and chosen times lie as evenly as the times allow.

    Each is the time nearest to its share of the way from start to the last time; no time serves twice.
    """
    if count >= len(times):
        return list(range(len(times)))
    chosen: list[int] = []
    end = len(times)
    for share in range(count, 0, -1):
        wanted = start + (times[-1] - start) * share / count
        # As many as there are shares left must stay below, and those above are taken.
        end = _nearest(times, wanted, share - 1, end)
        chosen.append(end)
    return chosen[::-1]


def _nearest(times: Sequence[int], wanted: float, low: int, high: int) -> int:
    """The place in [low, high) whose time is nearest; of two that are equally near, the later one."""
    after = bisect_right(times, wanted, low, high)
    below, above = max(after - 1, low), min(after, high - 1)
    return below if wanted - times[below] < times[above] - wanted else above


# --- a budget ---------------------------------------------------------------------------------------------------------


class Usage:
    """How many bytes of packs remain when only some checkpoints are kept."""

    def __init__(self, pack_bytes: Mapping[str, int]) -> None:
        self._pack_bytes = pack_bytes
        self._times: Counter[Span] = Counter()
        self._live_bytes: Counter[str] = Counter()
        self.total_bytes = 0

    def add(self, held: Iterable[HeldCheckpoint[Key]]) -> None:
        for span in (span for one in held for span in one.spans):
            self._times[span] += 1
            if self._times[span] == 1:
                self._change(span[0], span[2])

    def remove(self, held: Iterable[HeldCheckpoint[Key]]) -> None:
        for span in (span for one in held for span in one.spans):
            self._times[span] -= 1
            if not self._times[span]:
                self._change(span[0], -span[2])

    def _change(self, pack: str, by_bytes: int) -> None:
        self.total_bytes -= self._on_disk(pack)
        self._live_bytes[pack] += by_bytes
        self.total_bytes += self._on_disk(pack)

    def _on_disk(self, pack: str) -> int:
        live = self._live_bytes[pack]
        whole = self._pack_bytes.get(pack, live)
        return live if live < WORTH_REWRITING * whole else whole


def _fit(
    free: Sequence[Stock[Key]], kept: dict[str, tuple[HeldCheckpoint[Key], ...]], budget_bytes: int, usage: Usage
) -> None:
    """Thin the runs, those first that were used longest ago, until what is kept fits the budget."""
    for held in kept.values():
        usage.add(held)
    oldest_first = sorted(free, key=lambda stock: (stock.used_us, stock.run))
    for floor in FLOORS:
        for stock in oldest_first:
            if usage.total_bytes <= budget_bytes:
                return
            least = max(floor, 1) if stock.is_live else floor  # what is running must be able to go on after a crash
            # What is kept outside the home takes up nothing here.
            outside = tuple(held for held in kept[stock.run] if not held.spans)
            inside = tuple(held for held in kept[stock.run] if held.spans)
            thinned = _thinned(_with(stock, inside), least, budget_bytes, usage)
            kept[stock.run] = tuple(sorted(outside + thinned, key=lambda held: held.time_us))


def _thinned(stock: Stock[Key], least: int, budget_bytes: int, usage: Usage) -> tuple[HeldCheckpoint[Key], ...]:
    """As many of a run's checkpoints as fit, but no fewer than `least`; `usage` follows."""
    low, high = min(least, len(stock.held)), len(stock.held)
    usage.remove(stock.held)
    while low < high:
        middle = (low + high + 1) // 2
        chosen = selected(stock, middle)
        usage.add(chosen)
        fits = usage.total_bytes <= budget_bytes
        usage.remove(chosen)
        low, high = (middle, high) if fits else (low, middle - 1)
    kept = selected(stock, low)
    usage.add(kept)
    return kept
