"""Merges replayed values into their run, as a journal beside the recorded one, written completely or not at all."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET

from relive.hindsight.evidence import SegmentVerdicts
from relive.model import Verdict
from relive.store import Home, JournalName, atomic_write, list_journals
from relive.store.journal import ParsedJournal, encode_line, encode_slots, line_schema, seal_fields, slot_kinds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

FORMAT = 1


def next_replay_number(folder: Path) -> int:
    """Returns the number of the next replay of a run."""
    return 1 + max((name.replay for name, _ in list_journals(folder)), default=0)


@dataclass(frozen=True, slots=True, eq=False)
class RankReplay:
    """The recorded journal of a rank, and those of its replayed segments."""

    rank: int
    recorded: ParsedJournal
    segments: Sequence[ParsedJournal]
    begun: Mapping[int, int]  # the number of iterations begun in each loop
    verdicts: Sequence[SegmentVerdicts] = ()  # of each segment; without them, values are unverified


@dataclass(frozen=True, slots=True)
class MergedReplay:
    """What was stored: the number of the replay (0: nothing), how many values, and how many with which verdict."""

    number: int = 0
    count: int = 0
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)  # name → verdict → number of values


def merge_replay(
    home: Home, run: str, ranks: Sequence[RankReplay], *, names: Collection[str], about: Mapping[str, Any],
    causes: Mapping[tuple[str, Verdict], Sequence[str]] = MappingProxyType({}),
) -> MergedReplay:  # fmt: skip
    """Stores the values of these names with their verdicts; `causes`: why values of a name have a verdict.

    The journal of the first rank is written last and commits the replay; it exists even if that rank logged nothing.
    """
    folder = home.run_folder(run)
    journals = [_MergedJournal(one.recorded, one.begun) for one in ranks]
    for journal, one in zip(journals, ranks, strict=True):
        for at, segment in enumerate(one.segments):
            journal.add(segment, names, one.verdicts[at] if one.verdicts else SegmentVerdicts())
    count = sum(journal.count for journal in journals)
    if not count:
        return MergedReplay()
    counts = _count_verdicts(journals)
    worst = max(Verdict.of(word) for of_name in counts.values() for word in of_name)
    about = {**about, "verdict": worst.word, "verdicts": counts}
    for journal in journals:
        journal.add_verdicts(causes)
    pairs = zip(journals, ranks, strict=True)
    written = [(journal, one.rank) for at, (journal, one) in enumerate(pairs) if journal.count or not at]
    number = next_replay_number(folder)
    while not all(journal.reserve(folder, number, rank, about) for journal, rank in written):
        number += 1  # another replay has it, or one that died while it wrote
    for journal, rank in reversed(written):
        journal.write(folder, number, rank)
    return MergedReplay(number, count, counts)


def _count_verdicts(journals: Sequence[_MergedJournal]) -> dict[str, dict[str, int]]:
    """Returns name → verdict → number of values, over all ranks."""
    counts: dict[str, Counter[str]] = {}
    for journal in journals:
        for name, verdict in journal.all_verdicts():
            counts.setdefault(name, Counter())[verdict.word] += 1
    return {name: dict(found) for name, found in counts.items()}


class _MergedJournal:
    """The slots and lines of the journal that a rank gets."""

    def __init__(self, recorded: ParsedJournal, begun: Mapping[int, int]) -> None:
        self._recorded = recorded
        self._begun = begun
        self._last_loop = max(recorded.loops, default=1)
        self._names: dict[str, int] = {}
        self._slots: list[tuple[int, int, int, int, int]] = []
        self._lines: list[tuple[int, type[line_schema.JournalLine], dict[str, Any]]] = []
        self._added: dict[str, list[Ints]] = {}  # contexts, by name
        # Loops that the run did not have, by parent, iteration, name and ordinal.
        self._added_loops: dict[tuple[int, int, str, int], int] = {}
        self._verdicts: dict[str, list[tuple[int, int]]] = {}  # name → slot and verdict of each value, in order
        self._clock_ns = self._lead_lines = 0
        self.count = 0

    def add(self, segment: ParsedJournal, names: Collection[str], verdicts: SegmentVerdicts) -> None:
        """Adds values in contexts where the run has none of that name; each context is taken from one segment only."""
        codes = [at for at, name in enumerate(segment.names) if name in names]
        rows = np.flatnonzero(np.isin(segment.name, codes) & self._has_happened(segment))
        loops = self._number_new_loops(segment)
        renumbered = _renumber(segment.loop, loops)
        context = _context_ids(renumbered, segment.iteration)
        added = []
        for code in codes:
            name = segment.names[code]
            named = rows[segment.name[rows] == code]
            taken = np.concatenate([self._recorded_contexts(name), *self._added.get(name, [])])
            new = named[~np.isin(context[named], taken)]
            self._added.setdefault(name, []).append(context[new])
            added.append(new)
        rows = np.sort(np.concatenate([np.zeros(0, np.int64), *added]))
        judged = zip(segment.name[rows].tolist(), verdicts.of(segment.seq[rows]).tolist(), strict=True)
        for slot, (code, verdict) in enumerate(judged, start=len(self._slots)):
            self._verdicts.setdefault(segment.names[code], []).append((slot, verdict))
        self._add_values(segment, rows, renumbered)

    def all_verdicts(self) -> Iterator[tuple[str, Verdict]]:
        """The name and the verdict of each value."""
        for name, values in self._verdicts.items():
            yield from ((name, Verdict(verdict)) for _, verdict in values)

    def add_verdicts(self, causes: Mapping[tuple[str, Verdict], Sequence[str]]) -> None:
        """Adds a line for each name and verdict; no values can be added after it."""
        first = 3 + len(self._names)  # the position of the first slot: after the head, a tick, the start and the names
        for name, values in self._verdicts.items():
            for verdict in sorted({Verdict(one) for _, one in values}):
                why = list(causes.get((name, verdict), ()))
                slots = [(start + first, end + first) for start, end in _ranges(values, verdict)]
                content = {"name": self._names[name], "verdict": verdict.word, "slots": slots, "why": why or UNSET}
                self._lines.append((len(self._slots), line_schema.VerdictGiven, content))
                self._slots.append((1, 0, 0, slot_kinds.LINE, 0))

    def _recorded_contexts(self, name: str) -> Ints:
        """The contexts in which the run itself logged this name."""
        recorded = self._recorded
        rows = np.isin(recorded.name, [at for at, known in enumerate(recorded.names) if known == name])
        return _context_ids(recorded.loop[rows], recorded.iteration[rows])

    def _has_happened(self, segment: ParsedJournal) -> NDArray[np.bool_]:
        """Marks values in iterations that the run had begun: the replay of a killed run continues beyond them."""
        begun = {loop: self._begun.get(loop, 1 << 40) for loop in np.unique(segment.loop).tolist()}
        happened: NDArray[np.bool_] = segment.iteration < _renumber(segment.loop, begun)
        return happened

    def _add_values(self, segment: ParsedJournal, rows: Ints, loops: Ints) -> None:
        kind = segment.kind[rows].astype(np.int64)
        numbers = {code: self._name_number(segment.names[code]) for code in np.unique(segment.name[rows]).tolist()}
        number = _renumber(segment.name[rows], numbers)
        is_line = (kind == slot_kinds.LINE) & (segment.text is not None)
        is_integer = np.isin(kind, list(slot_kinds.INTEGER_KINDS))
        bits = np.where(is_integer, segment.exact[rows], segment.value[rows].view(np.int64))
        bits[is_line] = 0
        first, iterations = len(self._slots), segment.iteration[rows]
        for at in np.flatnonzero(is_line).tolist():
            assert segment.text is not None
            value = msgspec.json.decode(segment.text[rows[at]])
            place = {"loop": int(loops[rows[at]]), "i": int(iterations[at]), "name": int(number[at])}
            self._lines.append((first + at, line_schema.ValueLogged, {**place, "value": value}))
        number[is_line] = 0
        columns = (loops[rows], iterations, bits, kind, number)
        self._slots += zip(*(column.tolist() for column in columns), strict=True)
        self.count += len(rows)

    def _name_number(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = len(self._names) + 1
        return self._names[name]

    def _number_new_loops(self, segment: ParsedJournal) -> dict[int, int]:
        """Maps loops that the run did not have to new numbers, since each segment numbers them by itself.

        Every segment runs the code before the main loop: the same entry into a loop there gets the same number.
        """
        numbers: dict[int, int] = {}
        entered: Counter[tuple[int, int, str]] = Counter()
        for number in sorted(number for number in segment.loops if number not in self._recorded.loops):
            row = segment.loops[number]
            place = numbers.get(row.parent, row.parent), row.parent_iteration, row.name
            entered[place] += 1
            if (*place, entered[place]) not in self._added_loops:
                self._last_loop += 1
                self._added_loops[*place, entered[place]] = self._last_loop
                self._add_loop(segment, number, self._last_loop, parent=place[0])
            numbers[number] = self._added_loops[*place, entered[place]]
        return numbers

    def _add_loop(self, segment: ParsedJournal, old: int, new: int, *, parent: int) -> None:
        row = segment.loops[old]
        bits = parent | row.parent_iteration << 32
        self._slots.append((new, 0, _as_signed(bits), slot_kinds.LOOP, self._name_number(row.name)))
        if (row.start, row.step) != (0, 1):
            self._slots.append((new, 0, _pack_pair(row.start, row.step), slot_kinds.RANGE, 0))
        self._add_items(segment, old, new)

    def _add_items(self, segment: ParsedJournal, old: int, new: int) -> None:
        for key, item in segment.known_items.integers.items():
            if key >> 32 == old:
                self._slots.append((new, key & 0xFFFFFFFF, item, slot_kinds.ITEM, 0))
        for key, item in segment.known_items.others.items():
            if key >> 32 == old:
                content = {"loop": new, "i": key & 0xFFFFFFFF, "item": item}
                self._lines.append((len(self._slots), line_schema.LoopItem, content))
                self._slots.append((new, key & 0xFFFFFFFF, 0, slot_kinds.LINE, 0))

    def reserve(self, folder: Path, number: int, rank: int, about: Mapping[str, Any]) -> bool:
        """Writes the lines, which count once the slots exist; False when another replay has the number."""
        self._clock_ns, stem = time.monotonic_ns(), JournalName.of_replay(number, rank).stem
        start = {"wall_ns": time.time_ns(), "clock_ns": self._clock_ns, "number": number, **about}
        lead: list[tuple[type[line_schema.JournalLine], dict[str, Any]]] = [(line_schema.ReplayStarted, start)]
        lead += [(line_schema.NameDefined, {"id": id, "name": name}) for name, id in self._names.items()]
        first = 2  # the file's head, and a tick
        self._lead_lines = len(lead)
        lines = [(first + at, kind, content) for at, (kind, content) in enumerate(lead)]
        lines += [(at + first + len(lead), kind, content) for at, kind, content in self._lines]
        sealed = seal_fields(self._slot_bytes())
        lines.append((sealed["first"] + sealed["count"], line_schema.SlotsSealed, sealed))
        root = {"t": self._clock_ns, "loop": 1, "i": 0}
        raw = b"".join(encode_line(kind(seq=seq, **{**root, **content})) for seq, kind, content in lines)
        try:
            with (folder / f"{stem}.lines").open("xb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        return True

    def write(self, folder: Path, number: int, rank: int) -> None:
        """Writes the slots, completely or not at all."""
        stem = JournalName.of_replay(number, rank).stem
        atomic_write(folder / f"{stem}.slots", self._slot_bytes())

    def _slot_bytes(self) -> bytes:
        lead = [(1, 0, self._clock_ns, slot_kinds.TICK, 0), *[(1, 0, 0, slot_kinds.LINE, 0)] * self._lead_lines]
        return encode_slots([*lead, *self._slots], self._clock_ns)


def _ranges(values: Sequence[tuple[int, int]], verdict: Verdict) -> Iterator[tuple[int, int]]:
    """The first and the last slot of each sequence of values of a name with the same verdict."""
    for found, run in itertools.groupby(values, key=lambda value: value[1]):
        if found == verdict:
            slots = [slot for slot, _ in run]
            yield slots[0], slots[-1]


def _context_ids(loop: NDArray[Any], iteration: NDArray[Any]) -> Ints:
    context: Ints = loop.astype(np.int64) << 32 | iteration
    return context


def _renumber(numbers: NDArray[Any], mapping: Mapping[int, int]) -> Ints:
    """Maps each number; those that the mapping lacks stay."""
    known, where = np.unique(numbers, return_inverse=True)
    table = np.asarray([mapping.get(number, number) for number in known.tolist()], np.int64)
    return table[where]


def _as_signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _pack_pair(first: int, second: int) -> int:
    return _as_signed((first & 0xFFFFFFFF) | (second & 0xFFFFFFFF) << 32)
