"""The checkpoints that a journal names: after which loop or iteration each was taken, its size and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relive.store.home import JournalName
from relive.store.journal import Line, LoopRow, ParsedJournal, from_json, to_json

ITERATION, LOOP, END = "iteration", "loop", "end"


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint. `at` maps loop names to values; `place` says what had just ended when it was taken."""

    rank: int
    process: int
    seq: int  # sequence number of its line in the journal
    place: str  # "iteration" of the main loop, a nested "loop", or the "end" of the main loop
    name: str  # name of the loop
    at: dict[str, Any]
    iterations: int  # of that loop, completed before it
    manifest: str
    size_bytes: int
    new_bytes: int
    time_us: int
    stall_s: float
    write_s: float

    @property
    def journal(self) -> JournalName:
        return JournalName(self.rank, self.process)

    @property
    def path(self) -> str:
        """The names of the loops joined by slashes, outermost first."""
        return "/".join(self.at if self.place == ITERATION else (*self.at, self.name))

    @property
    def where(self) -> str:
        """Describes the position for users: `epoch=3`, or `end of batch in epoch=3`."""
        context = "/".join(f"{loop}={value}" for loop, value in self.at.items())
        if self.place == ITERATION:
            return context
        return f"end of {self.name} in {context}" if context else f"end of {self.name}"


def list_checkpoints(journal: ParsedJournal) -> list[CheckpointRow]:
    """Returns the checkpoints that a journal names, in the order in which they were taken."""
    clock_to_wall_ns = journal.header.get("wall_ns", 0) - journal.header.get("clock_ns", 0)
    lines = [line for line in journal.lines if line.get("k") == "checkpoint" and line["loop"] in journal.loops]
    return [_parse_row(journal, line, (line["t"] + clock_to_wall_ns) // 1000) for line in lines]


def _parse_row(journal: ParsedJournal, line: Line, time_us: int) -> CheckpointRow:
    loop = journal.loops[line["loop"]]
    at = _loop_values(loop)
    if line["place"] == ITERATION:
        item = journal.known_items.at(loop.loop, line["i"])
        at[loop.name] = loop.value(line["i"]) if item is None else item
    return CheckpointRow(
        journal.journal.rank, journal.journal.process, line["seq"], line["place"], loop.name, at, line["i"] + 1,
        line["manifest"], line["bytes"], line["new_bytes"], time_us, line["stall_s"], line["write_s"],
    )  # fmt: skip


def _loop_values(loop: LoopRow) -> dict[str, Any]:
    """Returns the values of the loops that enclose a loop, by name."""
    return {**dict(zip(loop.path, loop.dims, strict=False)), **loop.items}


def checkpoint_to_columns(row: CheckpointRow) -> tuple[Any, ...]:
    """Returns the columns of the catalog's table that follow the run's number."""
    return (
        row.rank, row.process, row.seq, row.place, row.name, to_json(row.at), row.iterations, row.manifest,
        row.size_bytes, row.new_bytes, row.time_us, row.stall_s, row.write_s,
    )  # fmt: skip


def checkpoint_from_columns(columns: Sequence[Any]) -> CheckpointRow:
    """Rebuilds a row from the columns that `checkpoint_to_columns` returned."""
    rank, process, seq, place, name, at, *rest = columns
    return CheckpointRow(rank, process, seq, place, name, from_json(at), *rest)


def _find_checkpoint(rows: Iterable[CheckpointRow], at: Mapping[str, Any]) -> CheckpointRow | None:
    """Returns the checkpoint that `epoch=7` selects: the one after that iteration, or else the last one within it.

    Without loop values it is the last one of the run.
    """
    matching = [row for row in rows if all(row.at.get(loop) == value for loop, value in at.items())]
    if at:
        after_iteration = [row for row in matching if row.place == ITERATION and set(row.at) == set(at)]
        matching = after_iteration or [row for row in matching if row.at]
    return matching[-1] if matching else None


def restore_candidates(rows: Sequence[CheckpointRow], at: Mapping[str, Any]) -> list[CheckpointRow]:
    """Returns the selected checkpoint, then the earlier ones, latest first, as fallbacks if it is damaged."""
    selected = _find_checkpoint(rows, at)
    if selected is None:
        return []
    return [selected, *(row for row in reversed(rows) if row.time_us < selected.time_us)]
