"""In which loops each function may be called: a search of the call graph whose effort is linear in the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from relive.hindsight.analysis.program import CodeUnit, LoopPath, Program
from relive.hindsight.analysis.syntax_facts import ANY_LOOP

_ANOTHER = "<another loop>"  # stands for any loop that the run did not enter at this point


class RecordedPaths:
    """The paths of the loops that a run entered. No other paths need to be told apart.

    A program has more paths than can be listed: methods are followed by their name, so that `model.train()` in a
    loop may call any function `train`, which has a loop around such a call itself.
    """

    def __init__(self, paths: Iterable[LoopPath]) -> None:
        self._starts = {path[:end] for path in paths for end in range(len(path) + 1)}
        self._occurring: dict[LoopPath, bool] = {}

    def shorten(self, path: LoopPath) -> LoopPath:
        """Returns a path up to the first loop that the run did not enter there, and names that one no further."""
        for end in range(1, len(path) + 1):
            if not self._occurs(path[:end]):
                return (*path[: end - 1], _ANOTHER)
        return path

    def _occurs(self, path: LoopPath) -> bool:
        if path not in self._occurring:
            self._occurring[path] = path in self._starts or any(
                len(known) == len(path) and starts_with(known, path) for known in self._starts
            )
        return self._occurring[path]


def starts_with(path: LoopPath, start: LoopPath) -> bool:
    if len(path) < len(start):
        return False
    return all(a == b or ANY_LOOP in (a, b) for a, b in zip(path, start, strict=False))


class _Step(NamedTuple):
    """A call, as far as it matters where it leads."""

    callee: str
    path: LoopPath
    is_after: bool  # a main loop of the calling unit may have begun


class _MainLoopLines(NamedTuple):
    """The lines of a unit that follow the beginning of a main loop, in it or in a function that it calls."""

    first: float
    repeated: tuple[tuple[int, int], ...]  # plain loops that run a main loop again and again


class LoopContexts:
    """The places from which each unit may be called. Functions of one name share them."""

    def __init__(self, program: Program, mains: Collection[LoopPath], recorded: RecordedPaths) -> None:
        self._program = program
        self._recorded = recorded
        self._main_names = {main[-1] for main in mains} | {ANY_LOOP}
        self._by_name: dict[str, list[CodeUnit]] = defaultdict(list)
        for unit in program.units:
            self._by_name[_name_called(unit)].append(unit)
        self._holders = self._find_main_holders()  # names of functions that hold a main loop, or call one that does
        self._main_lines: dict[int, _MainLoopLines] = {}
        self._places: dict[int, set[tuple[LoopPath, bool]]] = {}
        self._anywhere: set[int] = self._find_escaping()

    def of(self, unit: CodeUnit) -> set[tuple[LoopPath, bool]] | None:
        """The loops in which a unit is called, and whether a main loop may have begun; None: anywhere."""
        if id(unit) in self._anywhere:
            return None
        # A unit that no code calls by name is called in a way that the source does not show.
        return self._places.get(id(unit)) or None

    def all_loops(self) -> set[LoopPath]:
        """The path of every loop of the program, for every place where its unit may be called."""
        found = set()
        for unit in self._program.units:
            for path, _ in self.of(unit) or {((), True)}:
                found |= {(*path, *site.path, site.name) for site in unit.loops}
        return found

    def propagate(self, top: CodeUnit | None) -> None:
        """Follows the calls from the top level of the script. What may run anywhere calls only what may, too."""
        todo: list[tuple[CodeUnit, LoopPath, bool]] = [(top, (), False)] if top is not None else []
        seen: set[_Step] = set()
        steps: dict[int, set[_Step]] = {}
        while todo:
            unit, path, after = todo.pop()
            self._places.setdefault(id(unit), set()).add((path, after))
            if id(unit) not in steps:
                steps[id(unit)] = self._steps(unit)
            for step in steps[id(unit)]:
                whole = _Step(step.callee, self._recorded.shorten((*path, *step.path)), after or step.is_after)
                if whole not in seen:
                    seen.add(whole)
                    callees = [one for one in self._by_name[step.callee] if id(one) not in self._anywhere]
                    todo += [(callee, whole.path, whole.is_after) for callee in callees]

    def _steps(self, unit: CodeUnit) -> set[_Step]:
        calls = [call for call in unit.calls if call.name in self._by_name]
        return {_Step(call.name, call.path, self.is_after(unit, call.line)) for call in calls}

    def _find_escaping(self) -> set[int]:
        """Functions that are passed as values or called by libraries, and the functions they call."""
        units = self._program.units
        values = {name for unit in units for name in unit.values} - {"__init__"}
        # Generators that are iterated elsewhere than where they are made.
        made = {call.name for unit in units for call in unit.calls if not call.is_iterated}
        todo = [
            unit
            for unit in units
            if unit.name and (unit.is_implicit or unit.name in values or (unit.is_generator and unit.name in made))
        ]
        found = {id(unit) for unit in todo}
        followed: set[str] = set()
        while todo:
            unit = todo.pop()
            names = {*unit.values, *(call.name for call in unit.calls)} - followed
            followed |= names
            for callee in (one for name in names for one in self._by_name.get(name, ())):
                if id(callee) not in found:
                    found.add(id(callee))
                    todo.append(callee)
        return found

    def is_after(self, unit: CodeUnit, line: int) -> bool:
        """Whether a main loop may have begun when this line of the unit is reached."""
        if id(unit) not in self._main_lines:
            self._main_lines[id(unit)] = self._find_main_lines(unit)
        lines = self._main_lines[id(unit)]
        return lines.first < line or any(first <= line <= last for first, last in lines.repeated)

    def _find_main_lines(self, unit: CodeUnit) -> _MainLoopLines:
        starts = [site.line for site in unit.loops if site.name in self._main_names]
        starts += [call.line for call in unit.calls if call.name in self._holders]
        starts += [line for name, line in unit.values.items() if name in self._holders]
        repeated = [one for one in unit.plain_loops if any(one[0] <= start <= one[1] for start in starts)]
        return _MainLoopLines(min(starts, default=float("inf")), tuple(repeated))

    def _find_main_holders(self) -> set[str]:
        callers: dict[str, set[str]] = defaultdict(set)
        for unit in self._program.units:
            for name in {*unit.values, *(call.name for call in unit.calls)} & self._by_name.keys():
                callers[name].add(_name_called(unit))
        todo = {
            _name_called(u) for u in self._program.units if any(site.name in self._main_names for site in u.loops)
        }  # fmt: skip
        found: set[str] = set()
        while todo:
            name = todo.pop()
            found.add(name)
            todo |= callers[name] - found
        return found


def _name_called(unit: CodeUnit) -> str:
    """The name by which calls refer to a unit: a class for its `__init__`, a module for its top level."""
    if unit.name == "__init__" and unit.owner:
        return unit.owner
    return unit.name or f"<module {unit.file}>"
