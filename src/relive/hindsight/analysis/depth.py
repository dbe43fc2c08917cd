"""In which loops the added statements may run, by their position and through calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relive.hindsight.analysis.loop_contexts import LoopContexts, RecordedPaths, starts_with
from relive.hindsight.analysis.program import NO_FILES, LoopPath, LoopSite, Program, read_program
from relive.hindsight.analysis.syntax_facts import ANY_LOOP

_GRADIENT = re.compile(r"\bgrad\b|grad_norm|gradient", re.IGNORECASE)
PREFIX, SUFFIX, OUTER, INNER, NOWHERE = "prefix", "suffix", "outer", "inner", "nowhere"


@dataclass(frozen=True, slots=True)
class AddedStatement:
    """A statement that the recorded version did not have."""

    file: str
    line: int
    name: str  # of the value it logs


@dataclass(frozen=True, slots=True)
class Reach:
    """Where added statements may run, relative to the main loops of a run."""

    inside: frozenset[LoopPath]  # paths of main loops, and loops in them, in which a statement may run
    is_before: bool  # a statement may run before the first main loop
    is_after: bool  # a statement may run outside of the main loops after one of them has begun
    reasons: tuple[str, ...]  # why more loops are entered than the position alone requires
    kept: frozenset[str]  # names of loops that can't be skipped: how they are left, or where they are, isn't known
    is_anywhere: bool = False
    elsewhere: frozenset[LoopPath] = frozenset()  # other loops and blocks in which a statement may run
    is_only_after: bool = False  # every place of every statement comes after a main loop has begun, outside of it
    reads_gradients: bool = False  # which a skipped loop does not produce

    def enters(self, path: LoopPath) -> bool:
        """Whether loops of this path must run because a statement may be in them."""
        return any(starts_with(inner, path) for inner in self.inside | self.elsewhere)

    def depth(self, mains: Collection[LoopPath]) -> str:
        if any(len(path) > len(main) for path in self.inside for main in mains if starts_with(path, main)):
            return INNER
        if self.inside:
            return OUTER
        return SUFFIX if self.is_after else PREFIX if self.is_before else NOWHERE


def find_reach(
    files: Mapping[str, str], entry: str, added: Sequence[AddedStatement], mains: Collection[LoopPath], *,
    loops: Collection[LoopPath], instrumented: bool = False, has_framework_loop: bool = False,
    recorded: Mapping[str, str | None] = NO_FILES,
) -> Reach:  # fmt: skip
    """Finds where the added statements of a patched version may run when the script `entry` is started.

    `files` are those whose code could run, and `loops` the paths of all loops that the run entered: the result is
    exact for these. `recorded` are the files that statements were added to, without them: loops are instrumented as
    they were. `has_framework_loop`: a framework runs a main loop, which is then not in the source. Code that may be
    called from anywhere may be called inside it, and all other code may run after it.
    """
    program = read_program(files, entry if instrumented else None, recorded)
    contexts = LoopContexts(program, mains, RecordedPaths([*mains, *loops]))
    contexts.propagate(program.top(entry))
    found: set[LoopPath] = set()
    elsewhere: set[LoopPath] = set()
    before = after = anywhere = False
    only_after = bool(added)
    reasons: list[str] = []
    for statement in added:
        unit = program.innermost_unit(statement.file, statement.line)
        if unit is None:
            reasons.append(f"the run did not import {statement.file}")
            continue
        local = unit.path_at(statement.line)
        places = contexts.of(unit)
        if places is None:
            anywhere = after = before = True
            only_after = False
            # Where loops of functions that may be called from anywhere are, only the record tells.
            found |= {*contexts.all_loops(), *loops}
            found |= {path for main in mains for path in (main, (*main, ANY_LOOP))} if has_framework_loop else set()
            reasons.append(f"{unit.name}() in {statement.file} may be called from anywhere, so every loop is run")
            continue
        for path, is_after in places:
            whole = (*path, *local)
            is_inside = any(starts_with(whole, main) for main in mains)
            (found if is_inside else elsewhere).add(whole)
            is_later = not is_inside and (is_after or contexts.is_after(unit, statement.line))
            after |= is_later or (has_framework_loop and not is_inside)
            only_after &= is_later
            before |= not is_inside
        if len(places) > 1:
            reasons.append(f"{unit.name}() in {statement.file} is called from {len(places)} places")
    reads_gradients = any(_GRADIENT.search(_source_line(files, one)) for one in added)
    return Reach(
        frozenset(found), before, after, tuple(reasons), _unskippable_loops(program), anywhere, frozenset(elsewhere),
        only_after, reads_gradients,
    )  # fmt: skip


def with_reruns(reach: Reach, mains: Collection[LoopPath], loop: str) -> Reach:
    """Adds the places of statements in cells of a notebook that are executed again, each an iteration of a loop."""
    again = {(loop, *path) for path in reach.inside | reach.elsewhere}
    inside = {path for path in again if any(starts_with(path, main) for main in mains)}
    return replace(reach, inside=reach.inside | inside, elsewhere=reach.elsewhere | (again - inside))


def _source_line(files: Mapping[str, str], statement: AddedStatement) -> str:
    lines = files.get(statement.file, "").splitlines()
    return lines[statement.line - 1] if 0 < statement.line <= len(lines) else ""


def _unskippable_loops(program: Program) -> frozenset[str]:
    """Loops whose body runs elsewhere than their `for`, and loops whose name is not known."""
    sites = [site for unit in program.units for site in unit.loops]
    return frozenset(site.name for site in sites if site.is_apart) | (
        {ANY_LOOP} if any(s.name == ANY_LOOP for s in sites) else set()
    )


def leaving_loops(files: Mapping[str, str], instrumented_from: str | None = None) -> frozenset[str]:
    """Loops that may be left by a return, or by a break past an else: skipping one could continue at another place."""
    sites: Iterable[LoopSite] = (site for unit in read_program(files, instrumented_from).units for site in unit.loops)
    return frozenset(site.name for site in sites if site.leaves)
