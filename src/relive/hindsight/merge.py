"""Replayed values join their run: a journal beside the recorded one, whole or not there at all."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from relive.store import Home, JournalName, journals_in
from relive.store.journal import ParsedJournal, slot_kinds, slots_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

FORMAT = 1
_encode = msgspec.json.Encoder().encode


def next_number(folder: Path) -> int:
    """The number of the next replay of a run."""
    return 1 + max((name.replay for name, _ in journals_in(folder)), default=0)


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """What a rank logged when it was replayed, beside what it recorded."""

    rank: int
    recorded: ParsedJournal
    segments: Sequence[ParsedJournal]
    begun: Mapping[int, int]  # how many iterations of each loop there were


def join(
    home: Home, run: str, ranks: Sequence[Replayed], *, names: Collection[str], about: Mapping[str, Any]
) -> tuple[int, int]:
    """Keep the values of these names; gives the number of the replay, and how many values there are.

    The first rank comes last, and with it the replay is there: it has a journal even if it logged nothing.
    """
    folder = home.run_folder(run)
    every = [_Rows(one.recorded, one.begun) for one in ranks]
    for rows, one in zip(every, ranks, strict=True):
        for segment in one.segments:
            rows.add(segment, names)
    count = sum(rows.count for rows in every)
    if not count:
        return 0, 0
    kept = [(rows, one.rank) for at, (rows, one) in enumerate(zip(every, ranks, strict=True)) if rows.count or not at]
    number = next_number(folder)
    while not all(rows.reserve(folder, number, rank, about) for rows, rank in kept):
        number += 1  # another replay has it, or one that died while it wrote
    for rows, rank in reversed(kept):
        rows.write(folder, number, rank)
    return number, count


class _Rows:
    """The slots and lines of a joined journal."""

    def __init__(self, recorded: ParsedJournal, begun: Mapping[int, int]) -> None:
        self._recorded = recorded
        self._begun = begun
        self._last_loop = max(recorded.loops, default=1)
        self._names: dict[str, int] = {}
        self._slots: list[tuple[int, int, int, int, int]] = []
        self._lines: list[tuple[int, dict[str, Any]]] = []
        self._added: dict[str, list[Ints]] = {}  # contexts, by name
        self._new: dict[tuple[int, int, str, int], int] = {}  # new loops by where, and as which, they are entered
        self._clock_ns = self._leading = 0
        self.count = 0

    def add(self, segment: ParsedJournal, names: Collection[str]) -> None:
        """Values in contexts where the run itself has none of that name, each context from one segment only."""
        wanted = [at for at, name in enumerate(segment.names) if name in names]
        rows = np.flatnonzero(np.isin(segment.name, wanted) & self._happened(segment))
        loops = self._new_loops(segment)
        moved = _mapped(segment.loop, loops)
        context = _context(moved, segment.iteration)
        kept = []
        for code in wanted:
            name = segment.names[code]
            own = rows[segment.name[rows] == code]
            own = own[~np.isin(context[own], np.concatenate([self._taken(name), *self._added.get(name, [])]))]
            self._added.setdefault(name, []).append(context[own])
            kept.append(own)
        self._values(segment, np.sort(np.concatenate([np.zeros(0, np.int64), *kept])), moved)

    def _taken(self, name: str) -> Ints:
        """The contexts in which the run itself has logged under this name."""
        recorded = self._recorded
        rows = np.isin(recorded.name, [at for at, known in enumerate(recorded.names) if known == name])
        return _context(recorded.loop[rows], recorded.iteration[rows])

    def _happened(self, segment: ParsedJournal) -> NDArray[np.bool_]:
        """A run that was killed had no more iterations than it had begun, although a replay goes on."""
        begun = {loop: self._begun.get(loop, 1 << 40) for loop in np.unique(segment.loop).tolist()}
        happened: NDArray[np.bool_] = segment.iteration < _mapped(segment.loop, begun)
        return happened

    def _values(self, segment: ParsedJournal, rows: Ints, moved: Ints) -> None:
        kind = segment.kind[rows].astype(np.int64)
        numbers = {code: self._number(segment.names[code]) for code in np.unique(segment.name[rows]).tolist()}
        number = _mapped(segment.name[rows], numbers)
        is_line = (kind == slot_kinds.LINE) & (segment.text is not None)
        is_integer = np.isin(kind, list(slot_kinds.INTEGER_KINDS))
        bits = np.where(is_integer, segment.exact[rows], segment.value[rows].view(np.int64))
        bits[is_line] = 0
        first, iterations = len(self._slots), segment.iteration[rows]
        for at in np.flatnonzero(is_line).tolist():
            assert segment.text is not None
            value = _form(segment.text[rows[at]])
            place = {"loop": int(moved[rows[at]]), "i": int(iterations[at]), "name": int(number[at])}
            self._lines.append((first + at, {"k": "log", **place, "value": value}))
        number[is_line] = 0
        columns = (moved[rows], iterations, bits, kind, number)
        self._slots += zip(*(column.tolist() for column in columns), strict=True)
        self.count += len(rows)

    def _number(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = len(self._names) + 1
        return self._names[name]

    def _new_loops(self, segment: ParsedJournal) -> dict[int, int]:
        """Loops that the run did not have: each segment numbers them by itself, so they are numbered anew.

        What comes before the main loop is run by every segment: the same entry into a loop there is one loop.
        """
        given: dict[int, int] = {}
        met: Counter[tuple[int, int, str]] = Counter()
        for number in sorted(number for number in segment.loops if number not in self._recorded.loops):
            row = segment.loops[number]
            place = given.get(row.parent, row.parent), row.parent_iteration, row.name
            met[place] += 1
            if (*place, met[place]) not in self._new:
                self._last_loop += 1
                self._new[*place, met[place]] = self._last_loop
                self._begin(segment, number, self._last_loop, parent=place[0])
            given[number] = self._new[*place, met[place]]
        return given

    def _begin(self, segment: ParsedJournal, old: int, new: int, *, parent: int) -> None:
        row = segment.loops[old]
        bits = parent | row.parent_iteration << 32
        self._slots.append((new, 0, _signed(bits), slot_kinds.LOOP, self._number(row.name)))
        if (row.start, row.step) != (0, 1):
            self._slots.append((new, 0, _pair(row.start, row.step), slot_kinds.RANGE, 0))
        self._items(segment, old, new)

    def _items(self, segment: ParsedJournal, old: int, new: int) -> None:
        for key, item in segment.known_items.integers.items():
            if key >> 32 == old:
                self._slots.append((new, key & 0xFFFFFFFF, item, slot_kinds.ITEM, 0))
        for key, item in segment.known_items.others.items():
            if key >> 32 == old:
                self._lines.append((len(self._slots), {"k": "item", "loop": new, "i": key & 0xFFFFFFFF, "item": item}))
                self._slots.append((new, key & 0xFFFFFFFF, 0, slot_kinds.LINE, 0))

    def reserve(self, folder: Path, number: int, rank: int, about: Mapping[str, Any]) -> bool:
        """Write the lines: a journal is there when its slots are. False when another replay has the number."""
        self._clock_ns, stem = time.monotonic_ns(), JournalName.of_replay(number, rank).stem
        header = {
            "k": "replay",
            "wall_ns": time.time_ns(),
            "clock_ns": self._clock_ns,
            "parent": 0,
            "number": number,
            **about,
        }
        named = [{"k": "name", "id": id, "name": name} for name, id in self._names.items()]
        first = 2  # the file's head, and a tick
        lead = [(first + at, line) for at, line in enumerate([header, *named])]
        self._leading = len(lead)
        lines = [*lead, *((at + first + len(lead), line) for at, line in self._lines)]
        rest = {"t": self._clock_ns, "loop": 1, "i": 0}
        raw = b"".join(_encode({"v": FORMAT, "seq": seq, **rest, **line}) + b"\n" for seq, line in lines)
        try:
            with (folder / f"{stem}.lines").open("xb") as file:
                _put(file, raw)
        except FileExistsError:
            return False
        return True

    def write(self, folder: Path, number: int, rank: int) -> None:
        """The slots, whole or not at all."""
        stem = JournalName.of_replay(number, rank).stem
        lead = [
            (1, 0, self._clock_ns, slot_kinds.TICK, 0),
            *((1, 0, 0, slot_kinds.LINE, 0) for _ in range(self._leading)),
        ]
        with (folder / f"{stem}.part").open("wb") as file:
            _put(file, slots_bytes([*lead, *self._slots], self._clock_ns))
        os.rename(folder / f"{stem}.part", folder / f"{stem}.slots")


def _put(file: Any, raw: bytes) -> None:
    file.write(raw)
    file.flush()
    os.fsync(file.fileno())


def _context(loop: NDArray[Any], iteration: NDArray[Any]) -> Ints:
    context: Ints = loop.astype(np.int64) << 32 | iteration
    return context


def _mapped(numbers: NDArray[Any], given: Mapping[int, int]) -> Ints:
    """Each number as it is given; as it was where nothing is."""
    known, where = np.unique(numbers, return_inverse=True)
    table = np.asarray([given.get(number, number) for number in known.tolist()], np.int64)
    return table[where]


def _form(text: str) -> Any:
    return msgspec.json.decode(text)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _pair(first: int, second: int) -> int:
    return _signed((first & 0xFFFFFFFF) | (second & 0xFFFFFFFF) << 32)
