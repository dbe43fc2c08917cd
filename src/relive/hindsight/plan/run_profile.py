"""What a recorded run says about its own course: its loops, how long each iteration took, and where checkpoints are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relive.hindsight.analysis import Path
from relive.store.chunks import CheckpointRow
from relive.store.journal import ROOT, ParsedJournal

ITERATION, LOOP, END = "iteration", "loop", "end"
NOTHING_KEPT = "no checkpoint is left of the run, so it runs from the start"


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint as a plan needs it."""

    manifest: str
    size_bytes: int
    is_complete: bool  # nothing had to be left out
    is_exhausted: bool = True  # its loop ran out, rather than being left
    is_plain: bool | None = None  # what follows the loop came next; unknown in older records
    is_entrance: bool = True  # of a nested loop: what the loop around it uses up is kept, so that a run may begin here


@dataclass(slots=True)
class Iteration:
    """One iteration of a main loop."""

    number: int
    took_s: float
    nested: list[Loop] = field(default_factory=list)
    end: Kept | None = None  # the state when it was over

    @property
    def own_s(self) -> float:
        """What it took besides its nested loops."""
        return max(0.0, self.took_s - sum(loop.took_s for loop in self.nested))


@dataclass(slots=True)
class Loop:
    """One entry into a loop."""

    number: int
    path: Path
    parent: int
    parent_iteration: int
    begun_s: float  # since the run began
    took_s: float
    iteration_count: int
    is_over: bool
    end: Kept | None = None
    iterations: list[Iteration] = field(default_factory=list)  # of a main loop
    is_shared: bool = True  # all ranks went through it; else it is never skipped: others may wait for what is in it

    @property
    def name(self) -> str:
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Profile:
    """The course of a run. Times are in seconds."""

    run: str
    loops: Mapping[int, Loop]
    mains: Sequence[Loop]  # in the order in which they were entered
    blocks: Sequence[Loop]  # other loops whose end state was kept: skipblocks
    start_up_s: float  # from the start of the process to the first verb
    took_s: float  # from the first verb to the end
    last_loop: int
    is_led: bool = False  # a library runs a main loop: the source does not show it
    reads_own: bool = False  # what comes after reads files that the training wrote
    why_whole: str = NOTHING_KEPT  # what keeps its loops, if there is no main one, from being gone through one by one

    @property
    def main_paths(self) -> frozenset[Path]:
        return frozenset(loop.path for loop in self.mains)

    @property
    def checkpoints(self) -> int:
        """How many can be planned with."""
        ends = [loop.end for loop in self.loops.values()] + [
            iteration.end for main in self.mains for iteration in main.iterations
        ]
        return sum(end is not None for end in ends)

    @property
    def before_s(self) -> float:
        """From the start of the process to the first main loop."""
        return self.start_up_s + self.prefix_s

    @property
    def prefix_s(self) -> float:
        """From the first verb to the first main loop."""
        return self.mains[0].begun_s if self.mains else self.took_s


def read_profile(run: str, journal: ParsedJournal, rows: Sequence[CheckpointRow], *, start_up_s: float) -> Profile:
    """The profile of a run from its canonical journal and the checkpoints that are still there."""
    begun_us = int(journal.header.get("wall_ns", 0)) // 1000
    last_us = _last_us(journal, begun_us)
    loops = {
        row.loop: Loop(
            row.loop, row.path, row.parent, row.parent_iteration, (row.begun_us - begun_us) / 1e6,
            ((row.ended_us or last_us) - row.begun_us) / 1e6, _iterations(row, journal), row.ended_us is not None,
        )
        for row in journal.loops.values()
    }  # fmt: skip
    kept = _kept(journal, rows)
    mains = _mains(loops, kept)
    stalls = _stalls(journal)
    for loop in mains:
        _add_iterations(loop, loops, journal, kept, stalls, begun_us)
    inside = {main.number for main in mains}
    for number, loop in loops.items():
        loop.end = kept.get((number, END, -1)) or kept.get((number, LOOP, -1))
    blocks = [loop for loop in loops.values() if loop.end is not None and not inside & {loop.number, loop.parent}]
    took_s = (last_us - begun_us) / 1e6
    led = [line["led"] for line in journal.lines if line.get("k") == "checkpointing" and line.get("led")]
    reads_own = any(told.get("reads_own") for told in led)
    return Profile(
        run, loops, mains, blocks, start_up_s, took_s, max(loops, default=ROOT), bool(led and mains), reads_own
    )


def _last_us(journal: ParsedJournal, begun_us: int) -> int:
    clock_to_wall_ns = journal.header.get("wall_ns", 0) - journal.header.get("clock_ns", 0)
    lines = [(line["t"] + clock_to_wall_ns) // 1000 for line in journal.lines[-1:]]
    marks = [time_us for _, _, time_us in journal.marks[-1:]]
    values = [int(journal.time_us[-1])] if len(journal) else []
    last: int = max([begun_us, *lines, *marks, *values])
    return last


def _iterations(row: object, journal: ParsedJournal) -> int:
    """How many were begun. A loop that never ended (the run was killed) is counted by what happened in it."""
    if row.ended_us is not None:  # type: ignore[attr-defined]
        return int(row.iterations)  # type: ignore[attr-defined]
    number: int = row.loop  # type: ignore[attr-defined]
    seen = [iteration for loop, iteration, _ in journal.marks if loop == number]
    seen += [inner.parent_iteration for inner in journal.loops.values() if inner.parent == number]
    inside = journal.iteration[journal.loop == number]
    return 1 + max([*seen, int(inside.max()) if len(inside) else -1], default=-1)


Key = tuple[int, str, int]  # loop, place, iteration (-1 for the end of a loop)


def _kept(journal: ParsedJournal, rows: Sequence[CheckpointRow]) -> dict[Key, Kept]:
    there = {(row.seq, row.manifest) for row in rows}
    found: dict[Key, Kept] = {}
    taken = [line for line in journal.lines if line.get("k") == "checkpoint"]
    # Older records don't tell of the loop around a nested one, but of other checkpoints of it.
    partial = {line["loop"] for line in taken if line["place"] != LOOP and line["left_out"]}
    whole = {line["loop"] for line in taken if line["place"] != LOOP} - partial
    for line in taken:
        if (line["seq"], line["manifest"]) in there:
            iteration = line["i"] if line["place"] == ITERATION else -1
            around = journal.loops[line["loop"]].parent if line["loop"] in journal.loops else ROOT
            is_entrance = not line["left_around"] if "left_around" in line else around in whole
            state = Kept(line["manifest"], line["bytes"], not line["left_out"], line.get("exhausted", True),
                         line.get("plainly"), is_entrance)  # fmt: skip
            found[line["loop"], line["place"], iteration] = state
    return found


def _stalls(journal: ParsedJournal) -> dict[Key, float]:
    """What checkpoints held the script up, by where they were taken: a replay takes none."""
    found: dict[Key, float] = {}
    for line in journal.lines:
        if line.get("k") == "checkpoint":
            # The end of a main loop waits until its state is written.
            waited = line.get("write_s", 0.0) if line["place"] == END else 0.0
            iteration = line["i"] if line["place"] == ITERATION else -1
            found[line["loop"], line["place"], iteration] = line.get("stall_s", 0.0) + waited
    return found


def _mains(loops: Mapping[int, Loop], kept: Mapping[Key, Kept]) -> list[Loop]:
    """Main loops are those whose iterations, or whose end, were kept; and those around a nested loop that was."""
    numbers = {loop for loop, place, _ in kept if place in (ITERATION, END) and loop in loops}
    numbers |= {loops[loop].parent for loop, place, _ in kept if place == LOOP and loops[loop].parent in loops}
    return sorted((loops[number] for number in numbers), key=lambda loop: loop.number)


def _add_iterations(
    main: Loop, loops: Mapping[int, Loop], journal: ParsedJournal, kept: Mapping[Key, Kept],
    stalls: Mapping[Key, float], begun_us: int,
) -> None:  # fmt: skip
    starts = _starts(main, loops, journal, begun_us)
    over = main.begun_s + main.took_s - stalls.get((main.number, END, -1), 0.0)
    for number in range(main.iteration_count):
        until = starts[number + 1] if number + 1 < main.iteration_count else over
        took_s = until - starts[number] - stalls.get((main.number, ITERATION, number), 0.0)
        main.iterations.append(Iteration(number, max(0.0, took_s), end=kept.get((main.number, ITERATION, number))))
    for loop in loops.values():
        if loop.parent == main.number and loop.parent_iteration < len(main.iterations):
            iteration, stall_s = main.iterations[loop.parent_iteration], stalls.get((loop.number, LOOP, -1), 0.0)
            loop.took_s, iteration.took_s = max(0.0, loop.took_s - stall_s), max(0.0, iteration.took_s - stall_s)
            iteration.nested.append(loop)


def _starts(main: Loop, loops: Mapping[int, Loop], journal: ParsedJournal, begun_us: int) -> list[float]:
    """When each iteration began: by its mark, else by a nested loop in it, else as if they were evenly spread."""
    known = {iteration: (time_us - begun_us) / 1e6 for loop, iteration, time_us in journal.marks if loop == main.number}
    for loop in loops.values():
        if loop.parent == main.number:
            known[loop.parent_iteration] = min(known.get(loop.parent_iteration, loop.begun_s), loop.begun_s)
    known[0] = min(known.get(0, main.begun_s), main.begun_s)
    ends = sorted({**known, main.iteration_count: main.begun_s + main.took_s}.items())
    starts: list[float] = []
    for (first, from_s), (after, to_s) in itertools.pairwise(ends):
        step = (to_s - from_s) / max(1, after - first)
        starts += [from_s + step * at for at in range(after - first)]
    return starts[: main.iteration_count]
