"""What a run left of its course, rank by rank: the moments at which its state is known, its loops, its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from relive.checkpoint.graph import GraphState
from relive.checkpoint.io import Checkpoint, open_checkpoint, open_packs
from relive.errors import ReliveError
from relive.store import Home, JournalName, is_trusted, list_journals, refusal
from relive.store.chunks import Chunks
from relive.store.journal import ROOT, LoopRow, ParsedJournal, line_schema, parse_journal, read_slots, slot_kinds

ENTRY, ITERATION, LOOP, END = "entry", "iteration", "loop", "end"
MomentKey = tuple[int, int, str, bool]


@dataclass(frozen=True, slots=True, eq=False)
class StateMoment:
    """A moment at which the state is known: a checkpoint, the entry of its loop, or a digest of the parameters."""

    loop: int
    iteration: int  # -1 at the entry
    place: str
    where: str  # `epoch=3`
    order: float  # its position among all that the run recorded
    digest: str = ""  # if this is all that is known
    leaves: int = 0  # tensors in the digest
    read: Callable[[], GraphState] | None = None

    @property
    def key(self) -> MomentKey:
        return self.loop, self.iteration if self.place in (ENTRY, ITERATION) else 0, self.place, self.read is None


@dataclass(slots=True, eq=False)
class RankTrace:
    """The course of one rank of a run."""

    run: str
    rank: int
    journal: ParsedJournal
    moments: list[StateMoment] = field(default_factory=list)
    begun: dict[int, int] = field(default_factory=dict)  # iterations that each loop began
    ends: dict[int, float] = field(default_factory=dict)  # the position of the end of each loop that ended
    is_ended: bool = True
    old_checkpoints: int = 0  # taken by an earlier release: their state can't be compared

    @property
    def name(self) -> str:
        return f"{self.run[:8]}" + (f" rank {self.rank}" if self.rank else "")

    @property
    def threads(self) -> int | None:
        begun = line_schema.lines_of(line_schema.CheckpointingBegun, self.journal.lines)
        return next((line.threads for line in reversed(begun) if line.threads), None)

    def is_clock(self, value: float) -> bool:
        """Whether a number is a time that one of the clocks showed during the run."""
        header = self.journal.header
        last_us = int(self.journal.time_us[-1]) if len(self.journal) else header.wall_ns // 1000
        lasted_s = max(0.0, last_us / 1e6 - header.wall_ns / 1e9)
        early_s, late_s = -_CLOCK_MARGIN_S, lasted_s + _CLOCK_MARGIN_S
        if any(early_s < (value - header.wall_ns * unit) / (1e9 * unit) < late_s for unit in (1e-9, 1e-6, 1e-3, 1.0)):
            return True
        return value % 1 != 0 and early_s < value - header.clock_ns / 1e9 < late_s  # no counter of steps

    def is_complete(self, loop: int, iteration: int) -> bool:
        """Whether an iteration ran to its end, as far as the journal shows."""
        if loop == ROOT:
            return self.is_ended
        is_over = loop in self.ends or iteration < self.begun.get(loop, 0) - 1
        return is_over and iteration < self.begun.get(loop, 0)

    def main_iteration(self, loop: int, iteration: int) -> tuple[int, int]:
        """Returns the loop and iteration of the outermost loop with recorded state that an iteration is in."""
        mains = {moment.loop for moment in self.moments if moment.place == ENTRY}
        found = loop, iteration
        while True:
            if loop in mains:
                found = loop, iteration
            row = self.journal.loops.get(loop)
            if row is None:
                return found
            loop, iteration = row.parent, row.parent_iteration

    def where(self, loop: int, iteration: int) -> str:
        row = self.journal.loops.get(loop)
        return _where(self.journal, row, iteration) if row is not None else "outside of loops"


_CLOCK_MARGIN_S = 600.0  # a script may take a time before its run begins


def read_traces(home: Home, run: str) -> dict[int, RankTrace]:
    """Returns the course of each rank of a run."""
    paths = dict(list_journals(home.run_folder(run)))
    chosen = {name.rank: path for name, path in paths.items() if not name.process}
    return {rank: _read_rank(home, run, rank, path) for rank, path in sorted(chosen.items())}


def _read_rank(home: Home, run: str, rank: int, path: Path) -> RankTrace:
    journal = parse_journal(path, JournalName(rank))
    orders = _Orders(path)
    ended = bool(line_schema.lines_of(line_schema.RunEnded, journal.lines))
    trace = RankTrace(run, rank, journal, is_ended=ended)
    trace.begun = {number: orders.begun(row) for number, row in journal.loops.items()}
    trace.ends = {number: orders.end(number) for number, row in journal.loops.items() if row.ended_us is not None}
    trace.moments = sorted(_moments(home, trace, orders), key=lambda moment: moment.order)
    return trace


def _moments(home: Home, trace: RankTrace, orders: _Orders) -> Iterator[StateMoment]:
    journal = trace.journal
    why = "" if is_trusted(home, trace.run) else refusal(home, trace.run, doing="reading its checkpoints")
    entered: set[int] = set()
    for line in line_schema.lines_of(line_schema.CheckpointTaken, journal.lines):
        row = journal.loops.get(line.loop)
        if row is None:
            continue
        if line.unknown is UNSET:
            trace.old_checkpoints += 1
            continue
        stored = _Stored(home, line.manifest, why)
        main = line.loop if line.place != LOOP else row.parent
        if main not in entered and main in journal.loops:
            entered.add(main)
            where = f"the entry of {journal.loops[main].name}"
            yield StateMoment(main, -1, ENTRY, where, orders.begin(main), read=stored.start)
        at = orders.end_of(line.loop, line.i) if line.place == ITERATION else orders.end(line.loop)
        where = _where(journal, row, line.i if line.place == ITERATION else None)
        yield StateMoment(line.loop, line.i, line.place, where, at, read=stored.graph)
    for digest in line_schema.lines_of(line_schema.StateDigest, journal.lines):
        row = journal.loops.get(digest.loop)
        if row is not None:
            yield StateMoment(
                digest.loop, digest.i, ITERATION, _where(journal, row, digest.i), orders.end_of(digest.loop, digest.i),
                digest.digest, digest.leaves,
            )  # fmt: skip


def _where(journal: ParsedJournal, row: LoopRow, iteration: int | None) -> str:
    at: dict[str, Any] = {**dict(zip(row.path, row.dims, strict=False)), **row.items}
    if iteration is not None:
        item = journal.known_items.at(row.loop, iteration)
        at[row.name] = row.value(iteration) if item is None else item
    context = "/".join(f"{loop}={value}" for loop, value in at.items())
    if iteration is not None:
        return context
    return f"the end of {row.name} in {context}" if context else f"the end of {row.name}"


class _Stored:
    """A checkpoint that is opened when its state is asked for."""

    def __init__(self, home: Home, manifest: str, refusal: str) -> None:
        self._home = home
        self._manifest = manifest
        self._refusal = refusal  # why it is read as data only

    def start(self) -> GraphState:
        return self._open().start

    def graph(self) -> GraphState:
        return self._open().graph

    def _open(self) -> Checkpoint:
        packs = open_packs(self._home)
        return open_checkpoint(self._manifest, Chunks(self._home.chunks), packs, refusal=self._refusal)


class _Orders:
    """Positions in a journal: of the beginning and end of loops, and of the end of their iterations."""

    def __init__(self, path: Path) -> None:
        slots = read_slots(path)
        self._slots = slots
        self._last = float(slots.seq[-1]) + 1 if len(slots.seq) else 1.0
        begun, ended = slots.of(slot_kinds.LOOP), slots.of(slot_kinds.END)
        self._begin = dict(zip(begun.loop.tolist(), begun.seq.tolist(), strict=True))
        self._end = dict(zip(ended.loop.tolist(), ended.seq.tolist(), strict=True))
        self._parents = begun.bits & 0xFFFFFFFF, begun.bits >> 32 & 0xFFFFFFFF, begun.seq
        self._inside: dict[int, tuple[Any, Any]] = {}

    def begin(self, loop: int) -> float:
        return float(self._begin.get(loop, 0)) - 0.5

    def end(self, loop: int) -> float:
        return float(self._end[loop]) - 0.4 if loop in self._end else self._last

    def end_of(self, loop: int, iteration: int) -> float:
        """Just before whatever came first after an iteration."""
        iterations, seqs = self._events(loop)
        later = seqs[iterations > iteration]
        return float(later.min()) - 0.5 if len(later) else self.end(loop) - 0.1

    def begun(self, row: LoopRow) -> int:
        if row.ended_us is not None:
            return row.iterations
        iterations, _ = self._events(row.loop)
        return int(iterations.max()) + 1 if len(iterations) else 0

    def _events(self, loop: int) -> tuple[Any, Any]:
        """The iterations that slots and nested loops of a loop belong to, and their positions."""
        if loop not in self._inside:
            slots = self._slots
            own = (slots.loop == loop) & (slots.kind != slot_kinds.END) & (slots.kind != slot_kinds.LOOP)
            parent, iteration, seq = self._parents
            nested = parent == loop
            self._inside[loop] = (
                np.concatenate([slots.iteration[own].astype(np.int64), iteration[nested].astype(np.int64)]),
                np.concatenate([slots.seq[own], seq[nested]]),
            )
        return self._inside[loop]


# --- loops of two runs ------------------------------------------------------------------------------------------------


def match_loops(one: RankTrace, other: RankTrace) -> tuple[dict[int, int], list[str]]:
    """Returns for loops of the other run the same ones of the first, and notes on those that have another name.

    Loops are the same if they have the same name and are inside the same iteration of the same loop, as often as one is
    run there; among loops that are left over, the order decides.
    """
    found, notes = {ROOT: ROOT}, dict[str, None]()
    here, there = _children(one.journal), _children(other.journal)
    todo = [(ROOT, ROOT)]
    while todo:
        first, second = todo.pop()
        for iteration, inner in here.get(first, {}).items():
            matching = there.get(second, {}).get(iteration, [])
            for mine, theirs in _pair_loops(inner, matching):
                found[theirs.loop] = mine.loop
                todo.append((mine.loop, theirs.loop))
                if mine.name != theirs.name:
                    notes[f"the loop {mine.name} of {one.name} is taken as {theirs.name} of {other.name}"] = None
    return found, list(notes)


def _children(journal: ParsedJournal) -> dict[int, dict[int, list[LoopRow]]]:
    found: dict[int, dict[int, list[LoopRow]]] = {}
    for row in journal.loops.values():
        found.setdefault(row.parent, {}).setdefault(row.parent_iteration, []).append(row)
    return found


def _pair_loops(one: list[LoopRow], other: list[LoopRow]) -> list[tuple[LoopRow, LoopRow]]:
    by_name: dict[str, list[LoopRow]] = {}
    for row in other:
        by_name.setdefault(row.name, []).append(row)
    pairs, left = [], []
    for row in one:
        if by_name.get(row.name):
            pairs.append((row, by_name[row.name].pop(0)))
        else:
            left.append(row)
    rest = [row for row in other if row in by_name.get(row.name, [])]
    return pairs + (list(zip(left, rest, strict=True)) if len(left) == len(rest) else [])


def require_known(traces: dict[int, RankTrace], run: str) -> dict[int, RankTrace]:
    """Returns the traces; a run without a journal can't be compared."""
    if not traces:
        raise ReliveError(f"run {run[:8]} has no journal here; fetch it with `relive fetch`")
    return traces
