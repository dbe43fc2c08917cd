"""What a program's source says about its loops, functions and calls: the facts that depth is told from."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import PurePosixPath

from relive.hindsight.analysis.syntax_facts import (
    ANY,
    CONSUMING,
    MANAGERS,
    at_once,
    has_yield,
    is_called_by_name,
    may_leave,
    name_in,
    simple_name,
)
from relive.instrument import HOOK, Survey, instrument, reachable, survey

Path = tuple[str, ...]  # of loop names, outermost first
_LOOP_VERBS = frozenset({"loop", "main"})
_NAMING_VERBS = frozenset({"loop", "main", "iterations", "main_iterations", "skipblock"})


@dataclass(frozen=True, slots=True)
class CallSite:
    """A place where a function may be called, or (as a value) given away to be called from anywhere."""

    name: str
    path: Path
    line: int
    is_value: bool = False
    is_attribute: bool = False
    is_iterated: bool = False  # what it gives is gone through right here: so the body of a generator runs here, too


@dataclass(frozen=True, slots=True)
class LoopSite:
    """A loop of ours in the source. `leaves` tells that skipping it by emptiness would take another way out."""

    name: str
    path: Path  # of the loops around it, in this unit
    line: int
    end_line: int
    leaves: bool
    is_apart: bool  # its body runs elsewhere, or when the loop is over: `yield`, or `for x in list(relive.loop(…))`


@dataclass(slots=True)
class CodeUnit:
    """A function, or the top level of a module."""

    file: str
    name: str
    first_line: int
    last_line: int
    owner: str = ""  # the class, for a method
    is_implicit: bool = False  # called by others than the program's own calls
    is_generator: bool = False  # its body runs where it is gone through, not where it is called
    calls: list[CallSite] = field(default_factory=list)
    loops: list[LoopSite] = field(default_factory=list)
    spans: list[tuple[int, int, Path]] = field(default_factory=list)  # first and last line of what is in a loop
    plain_loops: list[tuple[int, int]] = field(default_factory=list)

    def path_at(self, line: int) -> Path:
        """The innermost loops of ours around a line."""
        inside = [(last - first, path) for first, last, path in self.spans if first <= line <= last]
        return min(inside, key=lambda one: (-len(one[1]), one[0]))[1] if inside else ()


@dataclass(frozen=True, slots=True)
class Program:
    """The units of all files of a version."""

    units: list[CodeUnit]
    bases: dict[str, frozenset[str]]  # of each class of the project

    def top(self, file: str) -> CodeUnit | None:
        return next((unit for unit in self.units if unit.file == file and not unit.name), None)

    def around(self, file: str, line: int) -> CodeUnit | None:
        """The innermost unit that holds a line."""
        holding = [u for u in self.units if u.file == file and u.first_line <= line <= u.last_line]
        return min(holding, key=lambda unit: unit.last_line - unit.first_line, default=None)


def read_program(files: Mapping[str, str], entry: str | None = None) -> Program:
    """Read all files that are Python; those that can't be parsed hold nothing.

    `entry` is given for a run whose script was instrumented: then its loops are those that are chosen from there.
    """
    known = survey(reachable(entry, files.get).values()) if entry is not None else None
    modules = _modules(frozenset(files))
    # Most files of a version are those of the version before: what one says is worked out once.
    read = partial(_read_file, known) if known is not None else _read_once
    found = [read(file, text, modules) for file, text in files.items()]
    return Program(
        [unit for units, _ in found for unit in units],
        {name: bases for _, its in found for name, bases in its.items()},
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Modules:  # compared by identity: there is one for each set of files
    files: dict[str, str]  # by the name of the module


@lru_cache(maxsize=64)
def _modules(files: frozenset[str]) -> _Modules:
    return _Modules({_module_name(file): file for file in sorted(files)})


_Said = tuple[list[CodeUnit], dict[str, frozenset[str]]]


def _read_file(known: Survey | None, file: str, text: str, modules: _Modules) -> _Said:
    try:
        tree = ast.parse(text)
        if known is not None:
            instrument(tree, known)
    except (SyntaxError, ValueError, RecursionError):
        return [], {}
    reader = _ProgramReader(file, _ours(tree if "relive" in text else ast.Module([], [])), modules.files)
    reader.read_module(tree, len(text.splitlines()) + 1)
    return reader.units, reader.bases


@lru_cache(maxsize=20_000)
def _read_once(file: str, text: str, modules: _Modules) -> _Said:
    return _read_file(None, file, text, modules)


def _module_name(file: str) -> str:
    parts = PurePosixPath(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts and parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True)
class _Ours:
    """What the file calls relive, and the verbs it took from there."""

    modules: frozenset[str]
    verbs: dict[str, str]

    def verb(self, node: ast.expr) -> str | None:
        """The verb that an expression names: `relive.loop`, or `loop` after `from relive import loop`."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return node.attr
        return self.verbs.get(node.id) if isinstance(node, ast.Name) else None


def _ours(tree: ast.Module) -> _Ours:
    modules = {"relive", HOOK}
    verbs: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.name == "relive" and alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "relive":
            verbs |= {alias.asname or alias.name: alias.name for alias in node.names}
    return _Ours(frozenset(modules), verbs)


class _ProgramReader(ast.NodeVisitor):
    """Walks one file. The loops around the current node are on a stack; each function is a unit of its own."""

    def __init__(self, file: str, ours: _Ours, modules: dict[str, str]) -> None:
        self.units: list[CodeUnit] = []
        self.bases: dict[str, frozenset[str]] = {}
        self._file = file
        self._ours = ours
        self._modules = modules
        self._path: Path = ()
        self._owner: list[str] = []
        self._named: dict[str, str] = {}  # variables that hold a loop or a block of ours, by its name
        self._unit = CodeUnit(file, "", 1, 1)

    def read_module(self, tree: ast.Module, lines: int) -> None:
        self._unit = CodeUnit(self._file, "", 1, lines)
        self.units.append(self._unit)
        for node in tree.body:
            self.visit(node)

    # --- functions and classes ----------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            self.visit(default)
        owner = self._owner[-1] if self._owner else ""
        unit = CodeUnit(self._file, node.name, node.lineno, node.end_lineno or node.lineno, owner)
        unit.is_implicit = not is_called_by_name(node, owner, self.bases.get(owner, frozenset()))
        unit.is_generator = has_yield(node.body) and not MANAGERS & {*map(simple_name, node.decorator_list)}
        outside = self._unit, self._path, self._owner
        self._unit, self._path, self._owner = unit, (), []
        self.units.append(unit)
        for statement in node.body:
            self.visit(statement)
        self._unit, self._path, self._owner = outside

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A lambda is called by whoever it is given to."""
        unit = CodeUnit(self._file, f"<lambda:{node.lineno}>", node.lineno, node.end_lineno or node.lineno)
        unit.is_implicit = True
        outside = self._unit, self._path
        self._unit, self._path = unit, ()
        self.units.append(unit)
        self.visit(node.body)
        self._unit, self._path = outside

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bases[node.name] = frozenset(simple_name(base) for base in node.bases)
        for part in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
            self.visit(part)
        self._owner.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._owner.pop()

    # --- loops --------------------------------------------------------------------------------------------------

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        names = list(self._loop_names(node.iter))
        self._visit_iterated(node.iter, names)
        self.visit(node.target)
        if not names:
            self._unit.plain_loops.append((node.lineno, node.end_lineno or node.lineno))
        early = {name for part in at_once(node.iter) for name in self._loop_names(part)}
        self._inside(names, node, node.body[0].lineno, node.body, early=early)
        for statement in node.orelse:
            self.visit(statement)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        match node.test:
            case ast.Call(func=ast.Attribute(value=ast.Name(id), attr="go")) if id in self._named:
                self.visit(node.test)
                self._inside([self._named[id]], node, node.body[0].lineno, node.body)
                for statement in node.orelse:
                    self.visit(statement)
            case _:
                self._unit.plain_loops.append((node.lineno, node.end_lineno or node.lineno))
                self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """`if block.step_into():` is skipped like a loop."""
        name = self._block_name(node.test)
        self.visit(node.test)
        self._inside([name] if name else [], node, node.body[0].lineno, node.body)
        for statement in node.orelse:
            self.visit(statement)

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        names = [name for part in node.generators for name in self._loop_names(part.iter)]
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for part in node.generators:
            self._visit_iterated(part.iter, list(self._loop_names(part.iter)))
            inner += part.ifs
        self._inside(names, node, node.lineno, inner, leaves=isinstance(node, ast.GeneratorExp) and bool(names))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def _inside(self, names: list[str], node: ast.AST, first: int, body: Sequence[ast.AST], *,
                leaves: bool = False, early: Collection[str] = ()) -> None:  # fmt: skip
        outside, last = self._path, getattr(body[-1], "end_lineno", None) or first
        for name in names:
            line, end = getattr(node, "lineno", first), getattr(node, "end_lineno", None) or first
            ways = leaves or may_leave(node)
            self._unit.loops.append(LoopSite(name, self._path, line, end, ways, has_yield(body) or name in early))
            self._path = (*self._path, name)
        if names:
            self._unit.spans.append((first, last, self._path))
        for part in body:
            self.visit(part)
        self._path = outside

    def _visit_iterated(self, node: ast.expr, names: Sequence[str] = ()) -> None:
        """Visits an iterated expression. A generator that it calls runs between the iterations of the loop."""
        first = len(self._unit.calls)
        self.visit(node)
        calls = [replace(call, is_iterated=True) for call in self._unit.calls[first:]]
        self._unit.calls[first:] = [*calls, *(replace(c, path=(*c.path, *names)) for c in calls if names)]

    def _loop_names(self, node: ast.expr) -> Iterator[str]:
        """The loops of ours in an iterated expression: `tqdm(relive.loop("step", loader))`."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and self._ours.verb(inner.func) in _LOOP_VERBS:
                yield name_in(inner)
            elif isinstance(inner, ast.Name) and inner.id in self._named:
                yield self._named[inner.id]

    def _block_name(self, test: ast.expr) -> str | None:
        match test:
            case ast.Call(func=ast.Attribute(value=ast.Name(id), attr="step_into")):
                return self._named.get(id, ANY)
            case ast.Call(func=ast.Attribute(value=ast.Call() as made, attr="step_into")):
                return name_in(made)
        return None

    def visit_Assign(self, node: ast.Assign) -> None:
        made = node.value
        if isinstance(made, ast.Call) and self._ours.verb(made.func) in _NAMING_VERBS:
            self._named |= {target.id: name_in(made) for target in node.targets if isinstance(target, ast.Name)}
        self.generic_visit(node)

    # --- calls --------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if self._is_ours(function):
            pass  # what it is called by is our word, and no function of the program
        elif isinstance(function, ast.Name):
            self._note(function.id, node.lineno)
        elif isinstance(function, ast.Attribute):
            self._note(function.attr, node.lineno, is_attribute=True)
            self.visit(function.value)
        else:
            self.visit(function)
        consumes = isinstance(function, ast.Name) and function.id in CONSUMING
        for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
            (self._visit_iterated if consumes else self.visit)(part)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        for name in self._loop_names(node.value):
            self._unit.loops.append(LoopSite(name, self._path, node.lineno, node.lineno, leaves=False, is_apart=True))
        self._visit_iterated(node.value)

    def _is_ours(self, function: ast.expr) -> bool:
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return False
        return function.value.id in self._ours.modules or function.value.id in self._named

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._note(node.id, node.lineno, is_value=True)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self._note(node.attr, node.lineno, is_value=True, is_attribute=True)
        self.visit(node.value)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """A module's top level runs where it is imported."""
        named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in named:
            for module, file in self._modules.items():
                if module == name or module.endswith("." + name) or name.startswith(module + "."):
                    self._note(f"<module {file}>", node.lineno)

    visit_ImportFrom = visit_Import

    def _note(self, name: str, line: int, *, is_value: bool = False, is_attribute: bool = False) -> None:
        self._unit.calls.append(CallSite(name, self._path, line, is_value, is_attribute))
