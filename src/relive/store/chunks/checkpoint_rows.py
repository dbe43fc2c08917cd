"""Where the checkpoints of a run are: at the end of which loop or iteration, and what they took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relive.store.home import JournalName
from relive.store.journal import Line, LoopRow, ParsedJournal, from_text, to_text

ITERATION, LOOP, END = "iteration", "loop", "end"


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint. `at` are the loop columns it lies in; `place` says of what it is the end."""

    rank: int
    process: int
    seq: int  # of its line in the journal
    place: str  # "iteration" of the main loop, a nested "loop", or the "end" of the main loop
    name: str  # of the loop
    at: dict[str, Any]
    iterations: int  # how many iterations of that loop it comes after
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
        """The names of the loops, outermost first."""
        return "/".join(self.at if self.place == ITERATION else (*self.at, self.name))

    @property
    def where(self) -> str:
        around = "/".join(f"{loop}={value}" for loop, value in self.at.items())
        if self.place == ITERATION:
            return around
        return f"end of {self.name} in {around}" if around else f"end of {self.name}"


def list_checkpoints(journal: ParsedJournal) -> list[CheckpointRow]:
    """The checkpoints that a journal names, in the order in which they were taken."""
    clock_to_wall_ns = journal.header.get("wall_ns", 0) - journal.header.get("clock_ns", 0)
    lines = [line for line in journal.lines if line.get("k") == "checkpoint" and line["loop"] in journal.loops]
    return [_row(journal, line, (line["t"] + clock_to_wall_ns) // 1000) for line in lines]


def _row(journal: ParsedJournal, line: Line, time_us: int) -> CheckpointRow:
    loop = journal.loops[line["loop"]]
    at = _around(loop)
    if line["place"] == ITERATION:
        item = journal.known_items.at(loop.loop, line["i"])
        at[loop.name] = loop.value(line["i"]) if item is None else item
    return CheckpointRow(
        journal.journal.rank, journal.journal.process, line["seq"], line["place"], loop.name, at, line["i"] + 1,
        line["manifest"], line["bytes"], line["new_bytes"], time_us, line["stall_s"], line["write_s"],
    )  # fmt: skip


def _around(loop: LoopRow) -> dict[str, Any]:
    return {**dict(zip(loop.path, loop.dims, strict=False)), **loop.items}


def to_stored(row: CheckpointRow) -> tuple[Any, ...]:
    """The columns of the catalog's table after the run's number."""
    return (
        row.rank, row.process, row.seq, row.place, row.name, to_text(row.at), row.iterations, row.manifest,
        row.size_bytes, row.new_bytes, row.time_us, row.stall_s, row.write_s,
    )  # fmt: skip


def from_stored(columns: Sequence[Any]) -> CheckpointRow:
    rank, process, seq, place, name, at, *rest = columns
    return CheckpointRow(rank, process, seq, place, name, from_text(at), *rest)


def choose(rows: Iterable[CheckpointRow], at: Mapping[str, Any]) -> CheckpointRow | None:
    """The checkpoint meant by `epoch=7`: the end of that iteration, or else of a loop in it; without, the last one."""
    fitting = [row for row in rows if all(row.at.get(loop) == value for loop, value in at.items())]
    if at:
        whole = [row for row in fitting if row.place == ITERATION and set(row.at) == set(at)]
        fitting = whole or [row for row in fitting if row.at]
    return fitting[-1] if fitting else None


def candidates(rows: Sequence[CheckpointRow], at: Mapping[str, Any]) -> list[CheckpointRow]:
    """The checkpoint meant, and behind it the earlier ones, the latest first: to fall back on if it is damaged."""
    meant = choose(rows, at)
    if meant is None:
        return []
    return [meant, *(row for row in reversed(rows) if row.time_us < meant.time_us)]
