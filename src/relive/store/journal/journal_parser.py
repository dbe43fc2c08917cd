"""Slots and lines → logged values with their loop context, and the loops themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.store.home import JournalName
from relive.store.journal import slot_kinds
from relive.store.journal.journal_file import ROOT
from relive.store.journal.line_reader import Line, Lines, read_lines
from relive.store.journal.slot_reader import Slots, among, place_times, read_slots
from relive.store.journal.value_codec import to_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWN_NAME = "(unknown)"  # a slot whose name line was lost to a power cut


@dataclass(slots=True)
class LoopRow:
    """One entry into a loop: its own numbers, and the loop columns around it."""

    loop: int
    name: str
    parent: int
    parent_iteration: int
    path: tuple[str, ...]
    dims: tuple[int, ...]  # of the loops around it
    items: dict[str, Any]  # loop columns around it whose item isn't an integer
    begun_us: int
    start: int = 0
    step: int = 1
    ended_us: int | None = None
    iterations: int = 0

    def value(self, iteration: int) -> int:
        return self.start + self.step * iteration


@dataclass(frozen=True, slots=True, eq=False)
class ParsedJournal:
    """A journal, understood. The columns are rows of logged values in the order they were logged."""

    journal: JournalName
    header: Line
    lines: list[Line]
    loops: dict[int, LoopRow]
    names: list[str]
    paths: list[tuple[str, ...]]
    name: NDArray[Any]
    path: NDArray[Any]
    loop: NDArray[Any]
    iteration: NDArray[Any]
    seq: NDArray[Any]
    time_us: NDArray[Any]
    dims: NDArray[Any]
    kind: NDArray[Any]
    value: NDArray[Any]
    exact: NDArray[Any]
    text: NDArray[Any] | None
    items: NDArray[Any] | None
    known_items: _Items
    marks: list[tuple[int, int, int]] = field(default_factory=list)  # loop, iteration, time in microseconds
    ended: list[tuple[int, int]] = field(default_factory=list)  # loops that this process left, and their iterations
    problems: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seq)

    def only(self, rows: Any) -> ParsedJournal:
        """The same with some of its values, told by a mask."""
        import numpy as np

        mask = np.asarray(rows, bool)
        columns = ("name", "path", "loop", "iteration", "seq", "time_us", "dims", "kind", "value", "exact")
        texts: dict[str, Any] = {
            key: None if getattr(self, key) is None else getattr(self, key)[mask] for key in ("text", "items")
        }
        taken: dict[str, Any] = {key: getattr(self, key)[mask] for key in columns}
        return replace(self, **taken, **texts)


def parse_journal(path: Path, journal: JournalName, forked_from: ParsedJournal | None = None) -> ParsedJournal:
    """Read a whole journal. A forked child may log inside loops that its parent entered: `forked_from` knows them."""
    read, slots = read_lines(path), read_slots(path)
    progress = ParseProgress(before=forked_from).with_lines(read)
    if not read.damaged and not any(line.get("k") == "end" for line in read.lines):
        # The run goes on, and named something new after we read its lines, or after a server listed their size.
        slots = _with_known_names(slots, progress.name_of)
    return _understand(journal, read, slots, progress)


class KnownNames(NamedTuple):
    """What later records of a journal may refer to."""

    loops: dict[int, LoopRow]
    known_items: _Items


@dataclass(frozen=True, slots=True)
class ParseProgress:
    """How far a journal was understood, and what the rest of it needs to know."""

    before: ParsedJournal | KnownNames | None = None  # its loops and items so far, or those of its parent
    header: Line = field(default_factory=dict)
    name_of: dict[int, str] = field(default_factory=dict)
    tick_ns: int | None = None
    next_slot: int = 1
    lines_end: int = 0
    later: tuple[Line, ...] = ()  # lines whose slots were not read yet
    holes: tuple[int, ...] = ()  # slots that were passed over, because they were not written
    has_more: bool = False

    def with_lines(self, read: Lines) -> ParseProgress:
        names = {line["id"]: line["name"] for line in read.lines if line.get("k") == "name"}
        header = self.header or (read.lines[0] if read.lines else {})
        return replace(self, header=header, name_of={**self.name_of, **names}, lines_end=read.end)


def parse_appended(
    path: Path, journal: JournalName, progress: ParseProgress, count: int
) -> tuple[ParsedJournal, ParseProgress]:
    """Read what comes next in a journal, of at most `count` slots; the parts add up to what `parse_journal` gives."""
    found = read_slots(path, progress.next_slot, count)
    read = read_lines(path, progress.lines_end)  # after the slots, whose names are in them
    progress = progress.with_lines(read)
    slots = _with_known_names(found, progress.name_of)
    first, last = progress.next_slot, int(slots.seq[-1]) if len(slots.seq) else progress.next_slot - 1
    waiting = [*progress.later, *read.lines]
    part = _understand(journal, read._replace(lines=[one for one in waiting if one["seq"] <= last]), slots, progress)
    holes = set(range(first, last + 1)).difference(slots.seq.tolist()) if last - first + 1 > len(slots.seq) else ()
    ticks = slots.of(slot_kinds.TICK).bits
    return part, replace(
        progress, before=KnownNames(part.loops, part.known_items), next_slot=last + 1, holes=(*progress.holes, *holes),
        later=tuple(one for one in waiting if one["seq"] > last),
        tick_ns=int(ticks[-1]) if len(ticks) else progress.tick_ns, has_more=last == first + count - 1,
    )  # fmt: skip


def _with_known_names(slots: Slots, name_of: dict[int, str]) -> Slots:
    """The slots before the first one whose name was not told yet; the line is on its way."""
    import numpy as np

    unknown = ~np.isin(slots.name, [0, *name_of])
    return slots.first(int(unknown.argmax())) if unknown.any() else slots


def _understand(journal: JournalName, read: Lines, slots: Slots, progress: ParseProgress) -> ParsedJournal:
    header, name_of, before = progress.header, progress.name_of, progress.before
    wall_ns, clock_ns = int(header.get("wall_ns", 0)), int(header.get("clock_ns", 0))
    times = place_times(slots, wall_ns, clock_ns, progress.tick_ns)
    items = _Items(slots, read.lines, before)
    loops = _loops(slots, times, name_of, items, before.loops if before is not None else {})
    rows = _rows(slots, times, read.lines, wall_ns, clock_ns)
    context = _ContextTable(loops, rows["loop"], rows["iteration"], items)
    names, name = _number_names(rows.pop("name"), name_of)
    return ParsedJournal(
        journal=journal, header=header, lines=read.lines, loops=loops, names=names, paths=context.paths,
        name=name, path=context.path, dims=context.dims, items=context.items, known_items=items,
        marks=_marks(slots, times), ended=_ended(slots), problems=_problems(read, slots), **rows,
    )  # fmt: skip


class _Items:
    """What each iteration's item was, where it is not the iteration's number."""

    def __init__(self, slots: Slots, lines: list[Line], forked_from: ParsedJournal | KnownNames | None) -> None:
        found = slots.of(slot_kinds.ITEM)
        keys = (found.loop.astype("int64") << 32) | found.iteration
        self.integers: dict[int, int] = dict(zip(keys.tolist(), found.bits.tolist(), strict=True))
        self.others: dict[int, Any] = {
            line["loop"] << 32 | line["i"]: line["item"] for line in lines if line.get("k") == "item"
        }
        if forked_from is not None:
            self._inherit(forked_from.known_items, set(slots.of(slot_kinds.LOOP).loop.tolist()))

    def at(self, loop: int, iteration: int) -> Any:
        """The item as it is stored; None where it is the iteration's number."""
        key = loop << 32 | iteration
        return self.integers[key] if key in self.integers else self.others.get(key)

    def _inherit(self, parent: _Items, own: set[int]) -> None:
        """The parent's items, but for loops that the child began itself: after the fork both count on alike."""
        self.integers = {k: v for k, v in parent.integers.items() if k >> 32 not in own} | self.integers
        self.others = {k: v for k, v in parent.others.items() if k >> 32 not in own} | self.others


def _loops(
    slots: Slots, times: NDArray[Any], name_of: dict[int, str], items: _Items, inherited: dict[int, LoopRow]
) -> dict[int, LoopRow]:
    import numpy as np

    loops = dict(inherited)
    wanted = np.flatnonzero(among(slots.kind, (slot_kinds.LOOP, slot_kinds.RANGE, slot_kinds.END)))
    columns = (slots.loop, slots.name, slots.bits, slots.kind, times)
    for loop, name, bits, kind, time_us in zip(*(c[wanted].tolist() for c in columns), strict=True):
        if kind == slot_kinds.LOOP:
            parent, iteration = bits & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF
            loops[loop] = _enter(
                loop, name_of.get(name, UNKNOWN_NAME), loops.get(parent), iteration, items, time_us, parent
            )
        elif loop in loops:
            row = loops[loop]
            if row is inherited.get(loop):  # a replay or a child ended it: the parent's row is the parent's
                row = loops[loop] = replace(row)
            if kind == slot_kinds.RANGE:
                row.start, row.step = _signed(bits & 0xFFFFFFFF), _signed(bits >> 32 & 0xFFFFFFFF)
            else:
                row.iterations, row.ended_us = bits, time_us
    return loops


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _enter(
    loop: int, name: str, parent: LoopRow | None, iteration: int, items: _Items, time_us: int, number: int
) -> LoopRow:
    if parent is None:
        return LoopRow(loop, name, number, iteration, (name,), (), {}, time_us)
    key = parent.loop << 32 | iteration
    around = parent.items
    if key in items.others:
        around = {**around, parent.name: items.others[key]}
    dims = (*parent.dims, items.integers.get(key, parent.value(iteration)))
    return LoopRow(loop, name, number, iteration, (*parent.path, name), dims, around, time_us)


def _rows(slots: Slots, times: NDArray[Any], lines: list[Line], wall_ns: int, clock_ns: int) -> dict[str, Any]:
    """Logged values, numbers and lines together, in the order of their sequence numbers."""
    import numpy as np

    logged = np.flatnonzero(among(slots.kind, slot_kinds.VALUE_KINDS - {slot_kinds.LINE}))
    kind = slots.kind[logged]
    exact = slots.bits[logged]
    value = exact.view(np.float64).copy()
    whole = among(kind, slot_kinds.INTEGER_KINDS)
    value[whole] = exact[whole]
    unsigned = among(kind, (slot_kinds.NUMPY_KINDS["uint64"], slot_kinds.TORCH_KINDS["uint64"]))
    value[unsigned] = exact[unsigned].view(np.uint64)
    value[kind == slot_kinds.NONE] = np.nan
    exact[~whole] = 0
    rows: dict[str, Any] = {
        "seq": slots.seq[logged], "loop": slots.loop[logged].astype(np.int64),
        "iteration": slots.iteration[logged].astype(np.int64), "time_us": times[logged], "kind": kind,
        "name": slots.name[logged], "value": value, "exact": exact, "text": None,
    }  # fmt: skip
    written = [line for line in lines if line.get("k") == "log"]
    return _with_lines(rows, written, wall_ns - clock_ns) if written else rows


def _with_lines(rows: dict[str, Any], lines: list[Line], clock_to_wall_ns: int) -> dict[str, Any]:
    import numpy as np

    texts = np.empty(len(lines), object)
    texts[:] = [to_text(line["value"]) for line in lines]
    more: dict[str, Any] = {
        "seq": [line["seq"] for line in lines], "loop": [line["loop"] for line in lines],
        "iteration": [line["i"] for line in lines], "name": [line["name"] for line in lines],
        "time_us": [(line["t"] + clock_to_wall_ns) // 1000 for line in lines],
        "kind": np.full(len(lines), slot_kinds.LINE, np.uint8), "value": np.full(len(lines), np.nan),
        "exact": np.zeros(len(lines), np.int64), "text": texts,
    }  # fmt: skip
    rows["text"] = np.full(len(rows["seq"]), None, object)
    joined = {key: np.concatenate([column, np.asarray(more[key], column.dtype)]) for key, column in rows.items()}
    order = np.argsort(joined["seq"], kind="stable")
    return {key: column[order] for key, column in joined.items()}


class _ContextTable:
    """For rows given by loop and iteration: the path of loop names and the loop columns, by table look-up."""

    def __init__(self, loops: dict[int, LoopRow], loop: NDArray[Any], iteration: NDArray[Any], items: _Items) -> None:
        import numpy as np

        self.paths: list[tuple[str, ...]] = [()]
        number: dict[tuple[str, ...], int] = {(): 0}
        size = 1 + max(int(loop.max()) if len(loop) else ROOT, ROOT)
        known = [row for row in loops.values() if row.loop < size]
        depth = max((len(row.path) for row in known), default=0)
        paths, start, step = (np.zeros(size, np.int64) for _ in range(3))
        depths = np.zeros(size, np.int64)
        table = np.zeros((size, depth), np.int64)
        for row in known:
            if row.path not in number:
                number[row.path] = len(self.paths)
                self.paths.append(row.path)
            paths[row.loop], start[row.loop], step[row.loop] = number[row.path], row.start, row.step
            depths[row.loop] = len(row.path)
            table[row.loop, : len(row.dims)] = row.dims
        self.path: NDArray[Any] = paths[loop].astype(np.int32)
        self.dims: NDArray[Any] = table[loop]
        own = start[loop] + step[loop] * iteration
        own = _replace_items(own, loop, iteration, items.integers)
        inside = np.flatnonzero(depths[loop])
        self.dims[inside, depths[loop][inside] - 1] = own[inside]
        self.items = _other_items(loops, loop, iteration, items.others)


def _replace_items(own: NDArray[Any], loop: NDArray[Any], iteration: NDArray[Any], items: dict[int, int]) -> Any:
    import numpy as np

    if not items:
        return own
    keys = np.fromiter(items, np.int64, len(items))
    order = np.argsort(keys)
    keys, values = keys[order], np.fromiter(items.values(), np.int64, len(items))[order]
    wanted = (loop << 32) | iteration
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], own)


def _other_items(
    loops: dict[int, LoopRow], loop: NDArray[Any], iteration: NDArray[Any], others: dict[int, Any]
) -> NDArray[Any] | None:
    import numpy as np

    if not others:
        return None
    found = np.full(len(loop), None, object)
    for row, (number, inner) in enumerate(zip(loop.tolist(), iteration.tolist(), strict=True)):
        inside = loops.get(number)
        if inside is None:
            continue
        key = number << 32 | inner
        around = {**inside.items, inside.name: others[key]} if key in others else inside.items
        if around:
            found[row] = to_text(around)
    return found


def _number_names(name: NDArray[Any], name_of: dict[int, str]) -> tuple[list[str], NDArray[Any]]:
    """Names numbered from 0 without gaps; a name that two threads defined twice is one name."""
    import numpy as np

    if not len(name):
        return [], name.astype(np.int32)
    used = np.flatnonzero(np.bincount(name))
    names: dict[str, int] = {}
    table = np.zeros(int(used[-1]) + 1, np.int32)
    table[used] = [names.setdefault(name_of.get(int(n), UNKNOWN_NAME), len(names)) for n in used]
    return list(names), table[name]


def _marks(slots: Slots, times: NDArray[Any]) -> list[tuple[int, int, int]]:
    chosen = (slots.kind == slot_kinds.MARK).nonzero()[0]
    columns = (slots.loop, slots.iteration, times)
    return list(zip(*(column[chosen].tolist() for column in columns), strict=True))


def _ended(slots: Slots) -> list[tuple[int, int]]:
    found = slots.of(slot_kinds.END)
    return list(zip(found.loop.tolist(), found.bits.tolist(), strict=True))


def _problems(read: Any, slots: Slots) -> list[str]:
    problems = list(slots.problems)
    if read.torn_bytes:
        problems.append(f"a torn line of {read.torn_bytes} bytes at the end was left out")
    if read.damaged:
        problems.append(f"{read.damaged} lines are not readable")
    if read.newer:
        problems.append(f"{read.newer} lines are of a newer format; read them with a newer relive")
    if slots.torn:
        problems.append(f"{slots.torn} half-written slots were left out")
    return problems
