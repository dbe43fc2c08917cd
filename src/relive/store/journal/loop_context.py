"""The loops of a journal: their nesting, the items of their iterations, and the loop columns of each logged row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.store.journal import slot_kinds
from relive.store.journal.journal_file import ROOT
from relive.store.journal.line_schema import JournalLine, LoopItem, lines_of
from relive.store.journal.slot_reader import Slots, is_kind
from relive.store.journal.value_codec import to_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

TABLE_ROOM = 4_000_000  # tables by loop number may be larger than the number of rows by this much
UNKNOWN_NAME = "(unknown)"  # of a slot whose `name` line was lost in a power cut


@dataclass(slots=True)
class LoopRow:
    """One execution of a loop: its numbers, its range, and the values of the enclosing loops' columns."""

    loop: int
    name: str
    parent: int
    parent_iteration: int
    path: tuple[str, ...]
    dims: tuple[int, ...]  # items of the enclosing loops, outermost first
    items: dict[str, Any]  # columns of enclosing loops whose item isn't an integer
    begun_us: int
    start: int = 0
    step: int = 1
    ended_us: int | None = None
    iterations: int = 0
    left: int = slot_kinds.LEFT_UNKNOWN

    def value(self, iteration: int) -> int:
        """Returns the item of an iteration according to the loop's range."""
        return self.start + self.step * iteration


class KnownLoops(NamedTuple):
    """The loops and items read so far, to which later records of the journal may refer."""

    loops: dict[int, LoopRow]
    known_items: IterationItems


class IterationItems:
    """The items of iterations that differ from the loop's range. Keys are loop << 32 | iteration."""

    def __init__(self, slots: Slots, lines: list[JournalLine], inherited: IterationItems | None) -> None:
        found = slots.of(slot_kinds.ITEM)
        keys = (found.loop.astype("int64") << 32) | found.iteration
        self.integers: dict[int, int] = dict(zip(keys.tolist(), found.bits.tolist(), strict=True))
        self.others: dict[int, Any] = {line.loop << 32 | line.i: line.item for line in lines_of(LoopItem, lines)}
        if inherited is not None:
            self._inherit(inherited, set(slots.of(slot_kinds.LOOP).loop.tolist()))

    def at(self, loop: int, iteration: int) -> Any:
        """Returns the stored item; None if the item follows from the loop's range."""
        key = loop << 32 | iteration
        return self.integers[key] if key in self.integers else self.others.get(key)

    def _inherit(self, parent: IterationItems, own_loops: set[int]) -> None:
        """Adds the parent's items, except of loops begun here: after a fork both processes assign the same numbers."""
        self.integers = {k: v for k, v in parent.integers.items() if k >> 32 not in own_loops} | self.integers
        self.others = {k: v for k, v in parent.others.items() if k >> 32 not in own_loops} | self.others


def build_loops(
    slots: Slots, times: NDArray[Any], name_of: dict[int, str], items: IterationItems, inherited: dict[int, LoopRow]
) -> dict[int, LoopRow]:
    """Returns the loops by number: the inherited ones, and those that the slots begin, extend or end."""
    import numpy as np

    loops = dict(inherited)
    rows = np.flatnonzero(is_kind(slots.kind, (slot_kinds.LOOP, slot_kinds.RANGE, slot_kinds.END)))
    columns = (slots.loop, slots.iteration, slots.name, slots.bits, slots.kind, times)
    for loop, how, name, bits, kind, time_us in zip(*(c[rows].tolist() for c in columns), strict=True):
        if kind == slot_kinds.LOOP:
            parent, iteration = bits & 0xFFFFFFFF, bits >> 32 & 0xFFFFFFFF
            loops[loop] = _new_loop_row(
                loop, name_of.get(name, UNKNOWN_NAME), loops.get(parent), iteration, items, time_us, parent
            )
        elif loop in loops:
            row = loops[loop]
            if row is inherited.get(loop):  # ended by a replay or a child: the parent's row must not change
                row = loops[loop] = replace(row)
            if kind == slot_kinds.RANGE:
                row.start, row.step = _to_signed(bits & 0xFFFFFFFF), _to_signed(bits >> 32 & 0xFFFFFFFF)
            else:
                row.iterations, row.ended_us, row.left = bits, time_us, how
    return loops


def _to_signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _new_loop_row(
    loop: int, name: str, parent: LoopRow | None, iteration: int, items: IterationItems, time_us: int, number: int
) -> LoopRow:
    if parent is None:
        return LoopRow(loop, name, number, iteration, (name,), (), {}, time_us)
    key = parent.loop << 32 | iteration
    enclosing_items = parent.items
    if key in items.others:
        enclosing_items = {**enclosing_items, parent.name: items.others[key]}
    dims = (*parent.dims, items.integers.get(key, parent.value(iteration)))
    return LoopRow(loop, name, number, iteration, (*parent.path, name), dims, enclosing_items, time_us)


class RowContexts:
    """The path of loop names and the loop columns of rows given by loop and iteration, computed by table lookup."""

    def __init__(
        self, loops: dict[int, LoopRow], loop: NDArray[Any], iteration: NDArray[Any], items: IterationItems
    ) -> None:
        import numpy as np

        self.paths: list[tuple[str, ...]] = [()]
        path_numbers: dict[tuple[str, ...], int] = {(): 0}
        at, size, position_of = _table_positions(loops, loop)
        known = [row for row in loops.values() if position_of(row.loop) < size]
        depth = max((len(row.path) for row in known), default=0)
        paths, start, step = (np.zeros(size, np.int64) for _ in range(3))
        depths = np.zeros(size, np.int64)
        table = np.zeros((size, depth), np.int64)
        for row in known:
            if row.path not in path_numbers:
                path_numbers[row.path] = len(self.paths)
                self.paths.append(row.path)
            position = position_of(row.loop)
            paths[position], start[position], step[position] = path_numbers[row.path], row.start, row.step
            depths[position] = len(row.path)
            table[position, : len(row.dims)] = row.dims
        self.path: NDArray[Any] = paths[at].astype(np.int32)
        self.dims: NDArray[Any] = table[at]
        innermost = start[at] + step[at] * iteration
        innermost = _apply_integer_items(innermost, loop, iteration, items.integers)
        inside = np.flatnonzero(depths[at])
        self.dims[inside, depths[at][inside] - 1] = innermost[inside]
        self.items = _json_items(loops, loop, iteration, items.others)


def _table_positions(loops: dict[int, LoopRow], loop: NDArray[Any]) -> tuple[NDArray[Any], int, Callable[[int], int]]:
    """Returns the position of each row in tables by loop number, their size, and the position of a loop."""
    import numpy as np

    size = 1 + max(int(loop.max()) if len(loop) else ROOT, ROOT)
    if size <= len(loop) + TABLE_ROOM:
        return loop, size, int
    # Numbers are assigned in order, so these are damaged or hostile: the tables hold the known loops only.
    numbers = np.asarray(sorted({0, ROOT, *loops}), np.int64)
    at = np.minimum(np.searchsorted(numbers, loop), len(numbers) - 1)
    positions = {int(number): position for position, number in enumerate(numbers)}
    return np.where(numbers[at] == loop, at, 0), len(numbers), positions.__getitem__


def _apply_integer_items(
    values: NDArray[Any], loop: NDArray[Any], iteration: NDArray[Any], items: dict[int, int]
) -> Any:
    """Replaces the values that the loops' ranges predict by the recorded items, where there are any."""
    import numpy as np

    if not items:
        return values
    keys = np.fromiter(items, np.int64, len(items))
    order = np.argsort(keys)
    keys, recorded = keys[order], np.fromiter(items.values(), np.int64, len(items))[order]
    row_keys = (loop << 32) | iteration
    at = np.minimum(np.searchsorted(keys, row_keys), len(keys) - 1)
    return np.where(keys[at] == row_keys, recorded[at], values)


def _json_items(
    loops: dict[int, LoopRow], loop: NDArray[Any], iteration: NDArray[Any], others: dict[int, Any]
) -> NDArray[Any] | None:
    """Returns, for each row, the loop columns whose item isn't an integer, as a JSON object; None if there are none."""
    import numpy as np

    if not others:
        return None
    found = np.full(len(loop), None, object)
    for row, (number, index) in enumerate(zip(loop.tolist(), iteration.tolist(), strict=True)):
        inside = loops.get(number)
        if inside is None:
            continue
        key = number << 32 | index
        items = {**inside.items, inside.name: others[key]} if key in others else inside.items
        if items:
            found[row] = to_json(items)
    return found
