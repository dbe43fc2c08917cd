"""In which loops the added statements may run, by their position and through calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from relive.hindsight.analysis.program import NO_FILES, CallSite, CodeUnit, LoopPath, LoopSite, Program, read_program
from relive.hindsight.analysis.syntax_facts import ANY_LOOP

_MAX_DEPTH = 8  # nested loops; deeper paths come from recursion only
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

    def enters(self, path: LoopPath) -> bool:
        """Whether loops of this path must run because a statement may be in them."""
        return any(_starts_with(inner, path) for inner in self.inside | self.elsewhere)

    def depth(self, mains: Collection[LoopPath]) -> str:
        if any(len(path) > len(main) for path in self.inside for main in mains if _starts_with(path, main)):
            return INNER
        if self.inside:
            return OUTER
        return SUFFIX if self.is_after else PREFIX if self.is_before else NOWHERE


def find_reach(
    files: Mapping[str, str], entry: str, added: Sequence[AddedStatement], mains: Collection[LoopPath], *,
    instrumented: bool = False, has_framework_loop: bool = False, recorded: Mapping[str, str | None] = NO_FILES,
) -> Reach:  # fmt: skip
    """Finds where the added statements of a patched version may run when the script `entry` is started.

    `recorded` are the files that they were added to, without them: loops are instrumented as they were.
    `has_framework_loop`: a framework runs a main loop, which is then not in the source. Code that may be called from
    anywhere may be called inside it, and all other code may run after it.
    """
    program = read_program(files, entry if instrumented else None, recorded)
    contexts = _LoopContexts(program, mains)
    contexts.propagate(program.top(entry))
    found: set[LoopPath] = set()
    elsewhere: set[LoopPath] = set()
    before = after = anywhere = False
    only_after = bool(added)
    reasons: list[str] = []
    for statement in added:
        unit = program.innermost_unit(statement.file, statement.line)
        if unit is None:
            continue
        local = unit.path_at(statement.line)
        places = contexts.of(unit)
        if places is None:
            anywhere = after = before = True
            only_after = False
            found |= set(contexts.all_loops())
            found |= {path for main in mains for path in (main, (*main, ANY_LOOP))} if has_framework_loop else set()
            reasons.append(f"{unit.name}() in {statement.file} may be called from anywhere, so every loop is run")
            continue
        for path, is_after in places:
            whole = (*path, *local)
            is_inside = any(_starts_with(whole, main) for main in mains)
            (found if is_inside else elsewhere).add(whole)
            is_later = not is_inside and (is_after or contexts.is_after(unit, statement.line))
            after |= is_later or (has_framework_loop and not is_inside)
            only_after &= is_later
            before |= not is_inside
        if len(places) > 1:
            reasons.append(f"{unit.name}() in {statement.file} is called from {len(places)} places")
    kept = _unskippable_loops(program)
    if any(_GRADIENT.search(_source_line(files, one)) for one in added):
        kept |= {site.name for unit in program.units for site in unit.loops}
        reasons.append("the statement reads gradients, which a skipped loop does not produce, so no loop is skipped")
    return Reach(frozenset(found), before, after, tuple(reasons), kept, anywhere, frozenset(elsewhere), only_after)


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


def _starts_with(path: LoopPath, start: LoopPath) -> bool:
    if len(path) < len(start):
        return False
    return all(a == b or ANY_LOOP in (a, b) for a, b in zip(path, start, strict=False))


class _LoopContexts:
    """In which loops each unit may be called: a fixed point over the call graph."""

    def __init__(self, program: Program, mains: Collection[LoopPath]) -> None:
        self._program = program
        self._main_names = {main[-1] for main in mains} | {ANY_LOOP}
        self._by_name: dict[str, list[CodeUnit]] = {}
        for unit in program.units:
            key = unit.owner if unit.name == "__init__" and unit.owner else unit.name or f"<module {unit.file}>"
            self._by_name.setdefault(key, []).append(unit)
        self._holds_main = self._find_main_holders()
        self._places: dict[int, set[tuple[LoopPath, bool]]] = {}
        self._anywhere: set[int] = set()

    def of(self, unit: CodeUnit) -> set[tuple[LoopPath, bool]] | None:
        """The loops in which a unit is called, and whether a main loop may have begun; None: anywhere."""
        if id(unit) in self._anywhere:
            return None
        places = self._places.get(id(unit), set())
        # A unit that no code calls by name is called in a way that the source does not show.
        return places or None

    def all_loops(self) -> set[LoopPath]:
        """The path of every loop of the program, for every place where its unit may be called."""
        found = set()
        for unit in self._program.units:
            for path, _ in self.of(unit) or {((), True)}:
                found |= {(*path, *site.path, site.name) for site in unit.loops}
        return found

    def propagate(self, top: CodeUnit | None) -> None:
        """Follows the calls from the top level of the script, and from functions that may run anywhere."""
        todo: list[tuple[CodeUnit, LoopPath, bool]] = [(top, (), False)] if top is not None else []
        todo += [(unit, (), True) for unit in self._escaping()]
        while todo:
            unit, path, after = todo.pop()
            known = self._places.setdefault(id(unit), set())
            if (path, after) in known or len(path) > _MAX_DEPTH:
                continue
            known.add((path, after))
            for call in unit.calls:
                if not call.is_value:
                    later = after or self.is_after(unit, call.line)
                    todo += [(callee, (*path, *call.path), later) for callee in self._callees(call)]

    def _escaping(self) -> list[CodeUnit]:
        """Functions that are passed as values or called by libraries, and the functions they call."""
        calls = [call for unit in self._program.units for call in unit.calls]
        values = {call.name for call in calls if call.is_value}
        made = {call.name for call in calls if not call.is_iterated}  # generators that are iterated elsewhere
        found = [
            unit
            for unit in self._program.units
            if unit.name
            and (unit.is_implicit or self._is_passed_on(unit, values) or (unit.is_generator and unit.name in made))
        ]
        self._anywhere |= {id(unit) for unit in found}
        todo = list(found)
        while todo:
            for call in todo.pop().calls:
                for callee in self._callees(call):
                    if id(callee) not in self._anywhere:
                        self._anywhere.add(id(callee))
                        todo.append(callee)
                        found.append(callee)
        return found

    def _is_passed_on(self, unit: CodeUnit, values: set[str]) -> bool:
        return unit.name in values and unit.name != "__init__"

    def _callees(self, call: CallSite) -> list[CodeUnit]:
        return self._by_name.get(call.name, [])

    def is_after(self, unit: CodeUnit, line: int) -> bool:
        """Whether a main loop may have begun when this line of the unit is reached."""
        starts = [site.line for site in unit.loops if site.name in self._main_names]
        starts += [call.line for call in unit.calls if any(id(c) in self._holds_main for c in self._callees(call))]
        if any(start < line for start in starts):
            return True
        return any(first <= line <= last and first <= s <= last for first, last in unit.plain_loops for s in starts)

    def _find_main_holders(self) -> set[int]:
        holders = {id(u) for u in self._program.units if any(site.name in self._main_names for site in u.loops)}
        while True:
            more = {
                id(unit)
                for unit in self._program.units
                if id(unit) not in holders and any(id(c) in holders for call in unit.calls for c in self._callees(call))
            }
            if not more:
                return holders
            holders |= more
