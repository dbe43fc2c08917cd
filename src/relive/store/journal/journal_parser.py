"""Parses the slots and lines of a journal, at once or as it grows, into columns of logged values and loops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.store.home import JournalName
from relive.store.journal import slot_kinds
from relive.store.journal.journal_checks import find_damage, trusted_lines
from relive.store.journal.journal_file import ROOT
from relive.store.journal.line_reader import Lines, read_lines
from relive.store.journal.line_schema import (
    UNKNOWN_START,
    JournalLine,
    JournalStarted,
    NameDefined,
    RunEnded,
    ValueLogged,
    lines_of,
)
from relive.store.journal.loop_context import (
    UNKNOWN_NAME,
    IterationItems,
    KnownLoops,
    LoopRow,
    RowContexts,
    build_loops,
)
from relive.store.journal.slot_reader import Slots, is_kind, read_slots, wall_times_us
from relive.store.journal.value_codec import to_json

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ParsedJournal:
    """A parsed journal. The arrays are columns with one row per logged value, in the order of logging."""

    journal: JournalName
    header: JournalStarted
    lines: list[JournalLine]
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
    known_items: IterationItems
    marks: list[tuple[int, int, int]] = field(default_factory=list)  # loop, iteration, time in microseconds
    ended: list[tuple[int, int]] = field(default_factory=list)  # loops that this process left, and their iterations
    damage: tuple[str, ...] = ()  # what its checksums show to be lost

    def __len__(self) -> int:
        return len(self.seq)

    def only(self, rows: Any) -> ParsedJournal:
        """Returns a copy with only the logged values that a mask selects."""
        import numpy as np

        mask = np.asarray(rows, bool)
        columns = ("name", "path", "loop", "iteration", "seq", "time_us", "dims", "kind", "value", "exact")
        texts: dict[str, Any] = {
            key: None if getattr(self, key) is None else getattr(self, key)[mask] for key in ("text", "items")
        }
        selected: dict[str, Any] = {key: getattr(self, key)[mask] for key in columns}
        return replace(self, **selected, **texts)


def parse_journal(path: Path, journal: JournalName, forked_from: ParsedJournal | None = None) -> ParsedJournal:
    """Parses a whole journal. `forked_from` is the parent's: a forked child may log inside loops of its parent."""
    slots = read_slots(path)
    read = read_lines(path)  # read after the slots: each line is written before its slot
    damage = find_damage(path, read, slots)
    if damage.first_slot is not None:
        slots = slots.first(int((slots.seq < damage.first_slot).sum()))
    # Lines that were written since the slots were read may name loops that are not among these.
    read = read._replace(lines=trusted_lines(read.lines, 1 + (int(slots.seq[-1]) if len(slots.seq) else 0)))
    progress = ParseProgress(known=forked_from).with_lines(read)
    if damage.texts:
        slots, lines = _without_lost_loops(slots, read.lines, progress)
        read = read._replace(lines=lines)
    elif not read.damaged and not lines_of(RunEnded, read.lines):
        # The run may still be running, and define a name after its lines were fetched from a server.
        slots = _before_unknown_name(slots, progress.name_of)
    return replace(_build_parsed(journal, read, slots, progress), damage=damage.texts)


@dataclass(frozen=True, slots=True)
class ParseProgress:
    """How far a journal has been parsed, and the state that parsing the rest needs."""

    known: ParsedJournal | KnownLoops | None = None  # loops and items of the journal so far, or of its parent
    header: JournalStarted = UNKNOWN_START
    name_of: dict[int, str] = field(default_factory=dict)
    tick_ns: int | None = None
    next_slot: int = 1
    lines_end: int = 0
    pending_lines: tuple[JournalLine, ...] = ()  # lines read ahead of their slots
    holes: tuple[int, ...] = ()  # slots that were skipped because they were not written yet
    has_more: bool = False

    def with_lines(self, read: Lines) -> ParseProgress:
        """Adds the header and the names that newly read lines define."""
        names = {line.id: line.name for line in lines_of(NameDefined, read.lines)}
        header = self.header
        if header is UNKNOWN_START:
            header = next(iter(lines_of(JournalStarted, read.lines[:1])), UNKNOWN_START)
        return replace(self, header=header, name_of={**self.name_of, **names}, lines_end=read.end)


def parse_appended(
    path: Path, journal: JournalName, progress: ParseProgress, count: int
) -> tuple[ParsedJournal | None, ParseProgress]:
    """Parses at most `count` further slots of a journal; the parts together equal the result of `parse_journal`.

    There is no part if nothing was appended.
    """
    found = read_slots(path, progress.next_slot, count)
    read = read_lines(path, progress.lines_end)  # read after the slots, because lines define the names of slots
    if not len(found.seq) and not read.lines and not progress.pending_lines:
        return None, replace(progress, lines_end=read.end, has_more=False)
    progress = progress.with_lines(read)
    slots = _before_unknown_name(found, progress.name_of)
    first, last = progress.next_slot, int(slots.seq[-1]) if len(slots.seq) else progress.next_slot - 1
    lines = [*progress.pending_lines, *read.lines]
    part = _build_parsed(journal, read._replace(lines=[line for line in lines if line.seq <= last]), slots, progress)
    holes = set(range(first, last + 1)).difference(slots.seq.tolist()) if last - first + 1 > len(slots.seq) else ()
    ticks = slots.of(slot_kinds.TICK).bits
    return part, replace(
        progress, known=KnownLoops(part.loops, part.known_items), next_slot=last + 1, holes=(*progress.holes, *holes),
        pending_lines=tuple(line for line in lines if line.seq > last),
        tick_ns=int(ticks[-1]) if len(ticks) else progress.tick_ns, has_more=last == first + count - 1,
    )  # fmt: skip


def _without_lost_loops(
    slots: Slots, lines: list[JournalLine], progress: ParseProgress
) -> tuple[Slots, list[JournalLine]]:
    """Returns what belongs to names and loops that are known: the lines and slots that define the others are lost."""
    import numpy as np

    slots = slots.where(np.isin(slots.name, [0, *progress.name_of]))
    loops = {ROOT, *(progress.known.loops if progress.known is not None else ())}
    begun = slots.of(slot_kinds.LOOP)
    for loop, bits in zip(begun.loop.tolist(), begun.bits.tolist(), strict=True):
        if bits & 0xFFFFFFFF in loops:
            loops.add(loop)
    names = progress.name_of
    known = [
        line for line in lines if line.loop in loops and not (type(line) is ValueLogged and line.name not in names)
    ]
    return slots.where(np.isin(slots.loop, list(loops))), known


def _before_unknown_name(slots: Slots, name_of: dict[int, str]) -> Slots:
    """Returns the slots before the first whose name is not defined yet; the line that defines it is being written."""
    import numpy as np

    unknown = ~np.isin(slots.name, [0, *name_of])
    return slots.first(int(unknown.argmax())) if unknown.any() else slots


def _build_parsed(journal: JournalName, read: Lines, slots: Slots, progress: ParseProgress) -> ParsedJournal:
    header, name_of, known = progress.header, progress.name_of, progress.known
    times = wall_times_us(slots, header.wall_ns, header.clock_ns, progress.tick_ns)
    items = IterationItems(slots, read.lines, known.known_items if known is not None else None)
    loops = build_loops(slots, times, name_of, items, known.loops if known is not None else {})
    rows = _logged_rows(slots, times, read.lines, header.clock_to_wall_ns)
    context = RowContexts(loops, rows["loop"], rows["iteration"], items)
    names, name = _renumber_names(rows.pop("name"), name_of)
    return ParsedJournal(
        journal=journal, header=header, lines=read.lines, loops=loops, names=names, paths=context.paths,
        name=name, path=context.path, dims=context.dims, items=context.items, known_items=items,
        marks=_list_marks(slots, times), ended=_list_ended_loops(slots), **rows,
    )  # fmt: skip


def _logged_rows(slots: Slots, times: NDArray[Any], lines: list[JournalLine], clock_to_wall_ns: int) -> dict[str, Any]:
    """Returns the columns of the logged values, from slots and lines, in the order of their sequence numbers."""
    import numpy as np

    logged = np.flatnonzero(is_kind(slots.kind, slot_kinds.VALUE_KINDS - {slot_kinds.LINE}))
    kind = slots.kind[logged]
    exact = slots.bits[logged]
    value = exact.view(np.float64).copy()
    integer = is_kind(kind, slot_kinds.INTEGER_KINDS)
    value[integer] = exact[integer]
    unsigned = is_kind(kind, (slot_kinds.NUMPY_KINDS["uint64"], slot_kinds.TORCH_KINDS["uint64"]))
    value[unsigned] = exact[unsigned].view(np.uint64)
    value[kind == slot_kinds.NONE] = np.nan
    exact[~integer] = 0
    rows: dict[str, Any] = {
        "seq": slots.seq[logged], "loop": slots.loop[logged].astype(np.int64),
        "iteration": slots.iteration[logged].astype(np.int64), "time_us": times[logged], "kind": kind,
        "name": slots.name[logged], "value": value, "exact": exact, "text": None,
    }  # fmt: skip
    log_lines = lines_of(ValueLogged, lines)
    return _merge_line_rows(rows, log_lines, clock_to_wall_ns) if log_lines else rows


def _merge_line_rows(rows: dict[str, Any], lines: list[ValueLogged], clock_to_wall_ns: int) -> dict[str, Any]:
    """Merges the values logged as lines into the columns, by sequence number."""
    import numpy as np

    texts = np.empty(len(lines), object)
    texts[:] = [to_json(line.value) for line in lines]
    more: dict[str, Any] = {
        "seq": [line.seq for line in lines], "loop": [line.loop for line in lines],
        "iteration": [line.i for line in lines], "name": [line.name for line in lines],
        "time_us": [(line.t + clock_to_wall_ns) // 1000 for line in lines],
        "kind": np.full(len(lines), slot_kinds.LINE, np.uint8), "value": np.full(len(lines), np.nan),
        "exact": np.zeros(len(lines), np.int64), "text": texts,
    }  # fmt: skip
    rows["text"] = np.full(len(rows["seq"]), None, object)
    joined = {key: np.concatenate([column, np.asarray(more[key], column.dtype)]) for key, column in rows.items()}
    order = np.argsort(joined["seq"], kind="stable")
    return {key: column[order] for key, column in joined.items()}


def _renumber_names(name: NDArray[Any], name_of: dict[int, str]) -> tuple[list[str], NDArray[Any]]:
    """Renumbers names from 0 without gaps; a name that two threads defined twice gets one number."""
    import numpy as np

    if not len(name):
        return [], name.astype(np.int32)
    used = np.flatnonzero(np.bincount(name))
    names: dict[str, int] = {}
    table = np.zeros(int(used[-1]) + 1, np.int32)
    table[used] = [names.setdefault(name_of.get(int(n), UNKNOWN_NAME), len(names)) for n in used]
    return list(names), table[name]


def _list_marks(slots: Slots, times: NDArray[Any]) -> list[tuple[int, int, int]]:
    rows = (slots.kind == slot_kinds.MARK).nonzero()[0]
    columns = (slots.loop, slots.iteration, times)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


def _list_ended_loops(slots: Slots) -> list[tuple[int, int]]:
    found = slots.of(slot_kinds.END)
    return list(zip(found.loop.tolist(), found.bits.tolist(), strict=True))
