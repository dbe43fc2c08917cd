"""The profile of a recorded run: its loops, how long each iteration took, and where its checkpoints are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from relive.hindsight.analysis import LoopPath
from relive.store.chunks import CheckpointRow
from relive.store.journal import ROOT, LoopRow, ParsedJournal, line_schema

ITERATION, LOOP, END = "iteration", "loop", "end"  # where a checkpoint was taken
NO_CHECKPOINT = "no checkpoint is left of the run, so it runs from the start"


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint as the planner sees it."""

    manifest: str
    size_bytes: int
    is_complete: bool  # nothing had to be left out
    is_exhausted: bool = True  # its loop ran out of items, rather than being left by `break` or `return`
    is_normal_exit: bool | None = None  # the code after the loop came next; None: older records don't say
    can_resume: bool = True  # of a nested loop: it holds the iterators of the outer loop, so a worker can begin here


@dataclass(slots=True)
class Iteration:
    """One iteration of a main loop."""

    number: int
    took_s: float
    nested: list[Loop] = field(default_factory=list)
    end: RestorePoint | None = None  # the state after it

    @property
    def own_s(self) -> float:
        """The time outside of its nested loops."""
        return max(0.0, self.took_s - sum(loop.took_s for loop in self.nested))


@dataclass(slots=True)
class Loop:
    """One entry into a loop."""

    number: int
    path: LoopPath
    parent: int
    parent_iteration: int
    begun_s: float  # since the run began
    took_s: float
    iteration_count: int
    is_over: bool
    end: RestorePoint | None = None
    iterations: list[Iteration] = field(default_factory=list)  # of a main loop
    is_shared: bool = True  # all ranks entered it; if not, it is never skipped: other ranks may wait for what it does

    @property
    def name(self) -> str:
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class RunProfile:
    """The loops of a run and their times. Times are in seconds."""

    run: str
    loops: Mapping[int, Loop]
    mains: Sequence[Loop]  # main loops, in the order in which they were entered
    blocks: Sequence[Loop]  # other loops whose end state was kept: skipblocks
    start_up_s: float  # from the start of the process to the first verb
    took_s: float  # from the first verb to the end
    last_loop: int
    has_framework_loop: bool = False  # a framework runs a main loop: the source does not show it
    reads_own_output: bool = False  # the code after the training reads files that the training wrote
    why_from_start: str = NO_CHECKPOINT  # the reason given when there is no main loop

    @property
    def main_paths(self) -> frozenset[LoopPath]:
        return frozenset(loop.path for loop in self.mains)

    @property
    def loop_paths(self) -> frozenset[LoopPath]:
        return frozenset(loop.path for loop in self.loops.values())

    @property
    def checkpoints(self) -> int:
        """The number of checkpoints that a plan can use."""
        ends = [loop.end for loop in self.loops.values()] + [
            iteration.end for main in self.mains for iteration in main.iterations
        ]
        return sum(end is not None for end in ends)

    @property
    def largest_checkpoint_bytes(self) -> int:
        ends = [loop.end for loop in self.loops.values()] + [one.end for main in self.mains for one in main.iterations]
        return max((end.size_bytes for end in ends if end is not None), default=0)

    @property
    def before_s(self) -> float:
        """From the start of the process to the first main loop."""
        return self.start_up_s + self.prefix_s

    @property
    def prefix_s(self) -> float:
        """From the first verb to the first main loop."""
        return self.mains[0].begun_s if self.mains else self.took_s


def read_profile(run: str, journal: ParsedJournal, rows: Sequence[CheckpointRow], *, start_up_s: float) -> RunProfile:
    """Returns the profile of a run, from the journal of one rank and its checkpoints that still exist."""
    begun_us = journal.header.wall_ns // 1000
    last_us = _last_time_us(journal, begun_us)
    loops = {
        row.loop: Loop(
            row.loop, row.path, row.parent, row.parent_iteration, (row.begun_us - begun_us) / 1e6,
            ((row.ended_us or last_us) - row.begun_us) / 1e6, count_iterations(row, journal), row.ended_us is not None,
        )
        for row in journal.loops.values()
    }  # fmt: skip
    states = _restore_points(journal, rows)
    mains = _main_loops(loops, states)
    stalls = _checkpoint_stalls(journal)
    for loop in mains:
        _add_iterations(loop, loops, journal, states, stalls, begun_us)
    inside = {main.number for main in mains}
    for number, loop in loops.items():
        loop.end = states.get((number, END, -1)) or states.get((number, LOOP, -1))
    blocks = [loop for loop in loops.values() if loop.end is not None and not inside & {loop.number, loop.parent}]
    took_s = (last_us - begun_us) / 1e6
    led = [line.led for line in line_schema.lines_of(line_schema.CheckpointingBegun, journal.lines) if line.led]
    return RunProfile(
        run, loops, mains, blocks, start_up_s, took_s, max(loops, default=ROOT),
        has_framework_loop=bool(led and mains), reads_own_output=any(one.get("reads_own") for one in led),
    )  # fmt: skip


def _last_time_us(journal: ParsedJournal, begun_us: int) -> int:
    lines = [(line.t + journal.header.clock_to_wall_ns) // 1000 for line in journal.lines[-1:]]
    marks = [time_us for _, _, time_us in journal.marks[-1:]]
    values = [int(journal.time_us[-1])] if len(journal) else []
    last: int = max([begun_us, *lines, *marks, *values])
    return last


def count_iterations(row: LoopRow, journal: ParsedJournal) -> int:
    """How many iterations were begun. For a loop that never ended (the run was killed), the last one seen counts."""
    if row.ended_us is not None:
        return row.iterations
    number, items = row.loop, journal.known_items
    seen = [iteration for loop, iteration, _ in journal.marks if loop == number]
    seen += [key & 0xFFFFFFFF for known in (items.integers, items.others) for key in known if key >> 32 == number]
    taken = line_schema.lines_of(line_schema.CheckpointTaken, journal.lines)
    seen += [line.i for line in taken if line.loop == number and line.place == ITERATION]
    seen += [inner.parent_iteration for inner in journal.loops.values() if inner.parent == number]
    inside = journal.iteration[journal.loop == number]
    return 1 + max([*seen, int(inside.max()) if len(inside) else -1], default=-1)


StateKey = tuple[int, str, int]  # loop, place, iteration (-1 for the end of a loop)


def _state_key(line: line_schema.CheckpointTaken) -> StateKey:
    return line.loop, line.place, line.i if line.place == ITERATION else -1


def _restore_points(journal: ParsedJournal, rows: Sequence[CheckpointRow]) -> dict[StateKey, RestorePoint]:
    existing = {(row.seq, row.manifest) for row in rows}
    found: dict[StateKey, RestorePoint] = {}
    taken = line_schema.lines_of(line_schema.CheckpointTaken, journal.lines)
    # Older records lack `left_around`; whether other checkpoints of the outer loop are complete answers the same.
    partial = {line.loop for line in taken if line.place != LOOP and line.left_out}
    whole = {line.loop for line in taken if line.place != LOOP} - partial
    for line in taken:
        # Earlier releases did not observe what a loop changes: nobody knows whether their checkpoints are complete.
        if (line.seq, line.manifest) in existing and line.unknown is not UNSET:
            outer = journal.loops[line.loop].parent if line.loop in journal.loops else ROOT
            can_resume = outer in whole if line.left_around is UNSET else not line.left_around
            found[_state_key(line)] = RestorePoint(
                line.manifest, line.bytes, not line.left_out, line.exhausted is UNSET or line.exhausted,
                None if line.plainly is UNSET else line.plainly, can_resume,
            )  # fmt: skip
    return found


def _checkpoint_stalls(journal: ParsedJournal) -> dict[StateKey, float]:
    """How long each checkpoint blocked the script. A replay takes none, so this is not part of its time."""
    found: dict[StateKey, float] = {}
    for line in line_schema.lines_of(line_schema.CheckpointTaken, journal.lines):
        # The end of a main loop waits until its state is written.
        found[_state_key(line)] = line.stall_s + (line.write_s if line.place == END else 0.0)
    return found


def _main_loops(loops: Mapping[int, Loop], states: Mapping[StateKey, RestorePoint]) -> list[Loop]:
    """Loops with checkpoints of their iterations or their end, and the outer loops of nested ones with a checkpoint."""
    numbers = {loop for loop, place, _ in states if place in (ITERATION, END) and loop in loops}
    numbers |= {loops[loop].parent for loop, place, _ in states if place == LOOP and loops[loop].parent in loops}
    return sorted((loops[number] for number in numbers), key=lambda loop: loop.number)


def _add_iterations(
    main: Loop, loops: Mapping[int, Loop], journal: ParsedJournal, states: Mapping[StateKey, RestorePoint],
    stalls: Mapping[StateKey, float], begun_us: int,
) -> None:  # fmt: skip
    starts = _iteration_starts(main, loops, journal, begun_us)
    over = main.begun_s + main.took_s - stalls.get((main.number, END, -1), 0.0)
    for number in range(main.iteration_count):
        until = starts[number + 1] if number + 1 < main.iteration_count else over
        took_s = until - starts[number] - stalls.get((main.number, ITERATION, number), 0.0)
        main.iterations.append(Iteration(number, max(0.0, took_s), end=states.get((main.number, ITERATION, number))))
    for loop in loops.values():
        if loop.parent == main.number and loop.parent_iteration < len(main.iterations):
            iteration, stall_s = main.iterations[loop.parent_iteration], stalls.get((loop.number, LOOP, -1), 0.0)
            loop.took_s, iteration.took_s = max(0.0, loop.took_s - stall_s), max(0.0, iteration.took_s - stall_s)
            iteration.nested.append(loop)


def _iteration_starts(main: Loop, loops: Mapping[int, Loop], journal: ParsedJournal, begun_us: int) -> list[float]:
    """When each iteration began: by its mark, else by a nested loop in it, else evenly spread between known times."""
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
