"""How deep a replay must go: in which loops the added statements may run, by position and through calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from relive.hindsight.analysis.program import CallSite, CodeUnit, LoopSite, Path, Program, read_program
from relive.hindsight.analysis.syntax_facts import ANY

_DEEPEST = 8  # loops inside each other; more come from recursion only
_GRADIENT = re.compile(r"\bgrad\b|grad_norm|gradient", re.IGNORECASE)
PREFIX, SUFFIX, OUTER, INNER, NOWHERE = "prefix", "suffix", "outer", "inner", "nowhere"


@dataclass(frozen=True, slots=True)
class Added:
    """A statement that was not there when the run was recorded."""

    file: str
    line: int
    name: str  # of the value it logs


@dataclass(frozen=True, slots=True)
class Reach:
    """Where added statements may run, seen from the main loops of a run."""

    inside: frozenset[Path]  # loops in which one may run, main loops and deeper
    is_before: bool  # one may run before the first main loop
    is_after: bool  # one may run outside of the main loops when one of them has begun
    reasons: tuple[str, ...]  # why it goes deeper than the position alone would say
    kept: frozenset[str]  # loops that can't be skipped: the way they are left, or their place, isn't known
    is_anywhere: bool = False
    elsewhere: frozenset[Path] = frozenset()  # loops and blocks outside of the main loops in which one may run

    def enters(self, path: Path) -> bool:
        """Must loops of this path be run, because a statement may be in them?"""
        return any(_begins(inner, path) for inner in self.inside | self.elsewhere)

    def depth(self, mains: Collection[Path]) -> str:
        if any(len(path) > len(main) for path in self.inside for main in mains if _begins(path, main)):
            return INNER
        if self.inside:
            return OUTER
        return SUFFIX if self.is_after else PREFIX if self.is_before else NOWHERE


def find_reach(
    files: Mapping[str, str], entry: str, added: Sequence[Added], mains: Collection[Path], *,
    instrumented: bool = False, is_led: bool = False,
) -> Reach:  # fmt: skip
    """Where the added statements of a patched version may run when `entry` is started.

    `is_led`: a library runs a main loop, which then stands nowhere in the source. What is called from anywhere may be
    called from inside it, and what is not may come after it.
    """
    program = read_program(files, entry if instrumented else None)
    contexts = _LoopContexts(program, mains)
    contexts.start(program.top(entry))
    found: set[Path] = set()
    elsewhere: set[Path] = set()
    before = after = anywhere = False
    reasons: list[str] = []
    for statement in added:
        unit = program.around(statement.file, statement.line)
        if unit is None:
            continue
        local = unit.path_at(statement.line)
        places = contexts.of(unit)
        if places is None:
            anywhere = after = before = True
            found |= set(contexts.all_loops())
            found |= {path for main in mains for path in (main, (*main, ANY))} if is_led else set()
            reasons.append(f"{unit.name}() in {statement.file} may be called from anywhere, so every loop is run")
            continue
        for path, is_after in places:
            whole = (*path, *local)
            is_inside = any(_begins(whole, main) for main in mains)
            (found if is_inside else elsewhere).add(whole)
            after |= not is_inside and (is_led or is_after or contexts.is_after(unit, statement.line))
            before |= not is_inside
        if len(places) > 1:
            reasons.append(f"{unit.name}() in {statement.file} is called from {len(places)} places")
    kept = _kept(program)
    if any(_GRADIENT.search(_line(files, one)) for one in added):
        kept |= {site.name for unit in program.units for site in unit.loops}
        reasons.append("gradients are asked for, which a skipped loop would not leave behind, so that none is skipped")
    return Reach(frozenset(found), before, after, tuple(reasons), kept, anywhere, frozenset(elsewhere))


def _line(files: Mapping[str, str], statement: Added) -> str:
    lines = files.get(statement.file, "").splitlines()
    return lines[statement.line - 1] if 0 < statement.line <= len(lines) else ""


def _kept(program: Program) -> frozenset[str]:
    """Loops whose `for` is not where their body is, and those whose name is not known."""
    sites = [site for unit in program.units for site in unit.loops]
    return frozenset(site.name for site in sites if site.is_apart) | (
        {ANY} if any(s.name == ANY for s in sites) else set()
    )


def leaving_loops(files: Mapping[str, str], instrumented_from: str | None = None) -> frozenset[str]:
    """Loops that may be left by a return, or by a break past an else: skipping them may take another way."""
    sites: Iterable[LoopSite] = (site for unit in read_program(files, instrumented_from).units for site in unit.loops)
    return frozenset(site.name for site in sites if site.leaves)


def _begins(path: Path, start: Path) -> bool:
    if len(path) < len(start):
        return False
    return all(a == b or ANY in (a, b) for a, b in zip(path, start, strict=False))


class _LoopContexts:
    """In which loops each unit may be called: a fixed point over the calls of the program."""

    def __init__(self, program: Program, mains: Collection[Path]) -> None:
        self._program = program
        self._main_names = {main[-1] for main in mains} | {ANY}
        self._by_name: dict[str, list[CodeUnit]] = {}
        for unit in program.units:
            key = unit.owner if unit.name == "__init__" and unit.owner else unit.name or f"<module {unit.file}>"
            self._by_name.setdefault(key, []).append(unit)
        self._holds_main = self._find_main_holders()
        self._places: dict[int, set[tuple[Path, bool]]] = {}
        self._anywhere: set[int] = set()

    def of(self, unit: CodeUnit) -> set[tuple[Path, bool]] | None:
        """The loops in which a unit is called, and whether a main loop may have begun; None: it may be anywhere."""
        if id(unit) in self._anywhere:
            return None
        places = self._places.get(id(unit), set())
        # Nobody calls it by name: then it is called in a way that the source does not tell.
        return places or None

    def all_loops(self) -> set[Path]:
        """Every loop of the program, in every place where its unit may be called."""
        found = set()
        for unit in self._program.units:
            for path, _ in self.of(unit) or {((), True)}:
                found |= {(*path, *site.path, site.name) for site in unit.loops}
        return found

    def start(self, top: CodeUnit | None) -> None:
        todo: list[tuple[CodeUnit, Path, bool]] = [(top, (), False)] if top is not None else []
        todo += [(unit, (), True) for unit in self._escaping()]
        while todo:
            unit, path, after = todo.pop()
            known = self._places.setdefault(id(unit), set())
            if (path, after) in known or len(path) > _DEEPEST:
                continue
            known.add((path, after))
            for call in unit.calls:
                if not call.is_value:
                    later = after or self.is_after(unit, call.line)
                    todo += [(callee, (*path, *call.path), later) for callee in self._callees(call)]

    def _escaping(self) -> list[CodeUnit]:
        """Functions that are given away as values, or called by libraries: where they run can't be told."""
        calls = [call for unit in self._program.units for call in unit.calls]
        values = {call.name for call in calls if call.is_value}
        made = {call.name for call in calls if not call.is_iterated}  # generators that are gone through elsewhere
        found = [
            unit
            for unit in self._program.units
            if unit.name
            and (unit.is_implicit or self._is_value(unit, values) or (unit.is_generator and unit.name in made))
        ]
        self._anywhere |= {id(unit) for unit in found}
        todo = list(found)
        while todo:  # and so are those that they call
            for call in todo.pop().calls:
                for callee in self._callees(call):
                    if id(callee) not in self._anywhere:
                        self._anywhere.add(id(callee))
                        todo.append(callee)
                        found.append(callee)
        return found

    def _is_value(self, unit: CodeUnit, values: set[str]) -> bool:
        return unit.name in values and unit.name != "__init__"

    def _callees(self, call: CallSite) -> list[CodeUnit]:
        return self._by_name.get(call.name, [])

    def is_after(self, unit: CodeUnit, line: int) -> bool:
        """May a main loop have begun when this line of the unit is reached?"""
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
