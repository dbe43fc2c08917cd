"""The loops, functions and calls of a program, read from its source files."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from relive.hindsight.analysis.module_files import ModuleFiles, module_files
from relive.hindsight.analysis.syntax_facts import (
    ANY_LOOP,
    CONSUMING,
    MANAGERS,
    eagerly_iterated,
    has_other_exit,
    has_yield,
    is_called_by_name,
    name_argument,
    simple_name,
    without_garbage_collection,
)
from relive.instrument import (
    CELL_FILE_SUFFIX,
    HOOK_NAME,
    ProjectSurvey,
    RecordedSource,
    instrument_loops,
    parse_cells,
    reachable_files,
    survey_functions,
)

LoopPath = tuple[str, ...]  # of loop names, outermost first
_LOOP_VERBS = frozenset({"loop", "main"})
_OTHER_FIELDS = frozenset({"ctx", "op", "ops", "type_comment", "kind"})  # of syntax nodes
_NAMING_VERBS = frozenset({"loop", "main", "iterations", "main_iterations", "skipblock"})


NO_FILES: Mapping[str, str | None] = MappingProxyType({})


class CallSite(NamedTuple):  # there are hundreds of thousands of them
    """A place where a function is called."""

    name: str
    path: LoopPath
    line: int
    is_iterated: bool = False  # its result is iterated here, so the body of a generator runs here, too


@dataclass(frozen=True, slots=True)
class LoopSite:
    """A relive loop in the source. `leaves`: an empty loop would continue elsewhere than a loop that ran."""

    name: str
    path: LoopPath  # the loops around it, in this unit
    line: int
    end_line: int
    leaves: bool
    is_apart: bool  # its body runs elsewhere (`yield`) or after the loop (`for x in list(relive.loop(…))`)


@dataclass(slots=True)
class CodeUnit:
    """A function, or the top level of a module."""

    file: str
    name: str
    first_line: int
    last_line: int
    owner: str = ""  # the class, for a method
    is_implicit: bool = False  # may be called by something other than the program's own calls
    is_generator: bool = False  # its body runs where it is iterated, not where it is called
    calls: list[CallSite] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)  # names that are used otherwise, with the first line of each
    loops: list[LoopSite] = field(default_factory=list)
    spans: list[tuple[int, int, LoopPath]] = field(default_factory=list)  # first and last line of each loop body
    plain_loops: list[tuple[int, int]] = field(default_factory=list)

    def path_at(self, line: int) -> LoopPath:
        """The path of the innermost relive loop around a line."""
        inside = [(last - first, path) for first, last, path in self.spans if first <= line <= last]
        return min(inside, key=lambda one: (-len(one[1]), one[0]))[1] if inside else ()


@dataclass(frozen=True, slots=True)
class Program:
    """The units of all files of a version."""

    units: list[CodeUnit]

    def top(self, file: str) -> CodeUnit | None:
        return next((unit for unit in self.units if unit.file == file and not unit.name), None)

    def innermost_unit(self, file: str, line: int) -> CodeUnit | None:
        """The innermost unit that contains a line."""
        holding = [u for u in self.units if u.file == file and u.first_line <= line <= u.last_line]
        return min(holding, key=lambda unit: unit.last_line - unit.first_line, default=None)


def read_program(
    files: Mapping[str, str], entry: str | None = None, recorded: Mapping[str, str | None] = NO_FILES
) -> Program:
    """Reads all files; those that can't be parsed have no units.

    `entry` is the script of a run that was instrumented: then the loops are those that instrumentation chooses, in
    files that statements were added to as they were `recorded`.
    """
    before = {file: text for file, text in {**files, **recorded}.items() if text is not None}
    modules = module_files(frozenset(files))
    sources = {file: RecordedSource(text, files[file]) for file, text in recorded.items() if file in files}
    with without_garbage_collection():
        known = _survey(entry, tuple(before.items())) if entry is not None else None
        plain = sources if known is not None else {}
        return Program(
            [unit for file, text in files.items() for unit in _read_file(known, file, text, modules, plain.get(file))]
        )


@lru_cache(maxsize=4)
def _survey(entry: str, files: tuple[tuple[str, str], ...]) -> ProjectSurvey:
    return survey_functions(reachable_files(entry, dict(files).get).values())


@lru_cache(maxsize=20_000)
def _read_file(
    known: ProjectSurvey | None, file: str, text: str, modules: ModuleFiles, recorded: RecordedSource | None = None
) -> list[CodeUnit]:
    """Reads a file once: most files of a version are equal to those of the version before."""
    try:
        if known is not None and file.endswith(CELL_FILE_SUFFIX):
            tree = parse_cells(text, known, recorded)
        else:
            tree = ast.parse(text)
            if known is not None:
                instrument_loops(tree, known, recorded)
    except (SyntaxError, ValueError, RecursionError):
        return []
    relive = _find_relive_names(tree) if "relive" in text else _ReliveNames(frozenset({HOOK_NAME}), {})
    reader = _ProgramReader(file, relive, modules, has_loops=known is not None or "relive" in text)
    reader.has_yield = "yield" in text
    reader.read_module(tree, len(text.splitlines()) + 1)
    return reader.units


@dataclass(frozen=True, slots=True)
class _ReliveNames:
    """The names by which a file knows relive, and the verbs it imported from there."""

    modules: frozenset[str]
    verbs: dict[str, str]

    def verb(self, node: ast.expr) -> str | None:
        """The verb that an expression refers to: `relive.loop`, or `loop` after `from relive import loop`."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return node.attr
        return self.verbs.get(node.id) if isinstance(node, ast.Name) else None


def _find_relive_names(tree: ast.Module) -> _ReliveNames:
    modules = {"relive", HOOK_NAME}
    verbs: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.name == "relive" and alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "relive":
            verbs |= {alias.asname or alias.name: alias.name for alias in node.names}
    return _ReliveNames(frozenset(modules), verbs)


class _ProgramReader(ast.NodeVisitor):
    """Walks one file, with the path of the loops around the current node; each function is a unit of its own."""

    def __init__(self, file: str, relive: _ReliveNames, modules: ModuleFiles, *, has_loops: bool) -> None:
        self.units: list[CodeUnit] = []
        self.has_yield = True
        self._has_loops = has_loops  # if not, no verb of relive is called in the file
        self._fields: dict[type[ast.AST], list[str]] = {}
        self._visitors: dict[type[ast.AST], Callable[[Any], None]] = {}
        self._bases: dict[str, frozenset[str]] = {}
        self._file = file
        self._relive = relive
        self._modules = modules
        self._path: LoopPath = ()
        self._owner: list[str] = []
        self._loop_variables: dict[str, str] = {}  # variables that hold a relive loop or block, with its name
        self._unit = CodeUnit(file, "", 1, 1)

    def visit(self, node: ast.AST) -> None:
        """Visits names here and looks methods up once for each type: large projects have a million nodes."""
        while type(node) is ast.Attribute:
            if type(node.ctx) is ast.Load:
                self._unit.values.setdefault(node.attr, node.lineno)
            node = node.value
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is ast.Load:  # type: ignore[attr-defined]
                self._unit.values.setdefault(node.id, node.lineno)  # type: ignore[attr-defined]
        elif kind is not ast.Constant:
            visitor = self._visitors.get(kind)
            if visitor is None:
                visitor = self._visitors[kind] = getattr(self, f"visit_{kind.__name__}", self.generic_visit)
            visitor(node)

    def generic_visit(self, node: ast.AST) -> None:
        kind = type(node)
        if kind not in self._fields:  # those that may hold statements or expressions
            self._fields[kind] = [name for name in kind._fields if name not in _OTHER_FIELDS]
        for name in self._fields[kind]:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item)
            elif value is not None and isinstance(value, ast.AST):
                self.visit(value)

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
        unit.is_implicit = not is_called_by_name(node, owner, self._bases.get(owner, frozenset()))
        unit.is_generator = (
            self.has_yield and has_yield(node.body) and not MANAGERS & {*map(simple_name, node.decorator_list)}
        )
        outside = self._unit, self._path, self._owner
        self._unit, self._path, self._owner = unit, (), []
        self.units.append(unit)
        for statement in node.body:
            self.visit(statement)
        self._unit, self._path, self._owner = outside

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A lambda is called by the code that it is passed to."""
        unit = CodeUnit(self._file, f"<lambda:{node.lineno}>", node.lineno, node.end_lineno or node.lineno)
        unit.is_implicit = True
        outside = self._unit, self._path
        self._unit, self._path = unit, ()
        self.units.append(unit)
        self.visit(node.body)
        self._unit, self._path = outside

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bases[node.name] = frozenset(simple_name(base) for base in node.bases)
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
        early = {name for part in eagerly_iterated(node.iter) for name in self._loop_names(part)} if names else set()
        self._visit_body(names, node, node.body[0].lineno, node.body, early=early)
        for statement in node.orelse:
            self.visit(statement)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        match node.test:
            case ast.Call(func=ast.Attribute(value=ast.Name(id), attr="go")) if id in self._loop_variables:
                self.visit(node.test)
                self._visit_body([self._loop_variables[id]], node, node.body[0].lineno, node.body)
                for statement in node.orelse:
                    self.visit(statement)
            case _:
                self._unit.plain_loops.append((node.lineno, node.end_lineno or node.lineno))
                self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """`if block.step_into():` is skipped like a loop."""
        name = self._block_name(node.test)
        self.visit(node.test)
        self._visit_body([name] if name else [], node, node.body[0].lineno, node.body)
        for statement in node.orelse:
            self.visit(statement)

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        names = [name for part in node.generators for name in self._loop_names(part.iter)]
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for part in node.generators:
            self._visit_iterated(part.iter, list(self._loop_names(part.iter)))
            inner += part.ifs
        self._visit_body(names, node, node.lineno, inner, leaves=isinstance(node, ast.GeneratorExp) and bool(names))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def _visit_body(self, names: list[str], node: ast.AST, first: int, body: Sequence[ast.AST], *,
                leaves: bool = False, early: Collection[str] = ()) -> None:  # fmt: skip
        outside, last = self._path, getattr(body[-1], "end_lineno", None) or first
        for name in names:
            line, end = getattr(node, "lineno", first), getattr(node, "end_lineno", None) or first
            ways = leaves or has_other_exit(node)
            self._unit.loops.append(LoopSite(name, self._path, line, end, ways, has_yield(body) or name in early))
            if name not in early:  # else it has ended when the body runs
                self._path = (*self._path, name)
        if self._path != outside:
            self._unit.spans.append((first, last, self._path))
        for part in body:
            self.visit(part)
        self._path = outside

    def _visit_iterated(self, node: ast.expr, names: Sequence[str] = ()) -> None:
        """Visits an iterated expression. A generator that it calls runs between the iterations of the loop."""
        first = len(self._unit.calls)
        self.visit(node)
        if len(self._unit.calls) == first:
            return
        calls = [call._replace(is_iterated=True) for call in self._unit.calls[first:]]
        self._unit.calls[first:] = [*calls, *(call._replace(path=(*call.path, *names)) for call in calls if names)]

    def _loop_names(self, node: ast.expr) -> Iterator[str]:
        """The relive loops in an iterated expression: `tqdm(relive.loop("step", loader))`."""
        if not self._has_loops:
            return
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and self._relive.verb(inner.func) in _LOOP_VERBS:
                yield name_argument(inner)
            elif isinstance(inner, ast.Name) and inner.id in self._loop_variables:
                yield self._loop_variables[inner.id]

    def _block_name(self, test: ast.expr) -> str | None:
        match test:
            case ast.Call(func=ast.Attribute(value=ast.Name(id), attr="step_into")):
                return self._loop_variables.get(id, ANY_LOOP)
            case ast.Call(func=ast.Attribute(value=ast.Call() as made, attr="step_into")):
                return name_argument(made)
        return None

    def visit_Assign(self, node: ast.Assign) -> None:
        made = node.value
        if isinstance(made, ast.Call) and self._relive.verb(made.func) in _NAMING_VERBS:
            self._loop_variables |= {
                target.id: name_argument(made) for target in node.targets if isinstance(target, ast.Name)
            }
        self.generic_visit(node)

    # --- calls --------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if self._is_relive_call(function):
            pass  # a verb of relive is no function of the program
        elif isinstance(function, ast.Name):
            self._add_call(function.id, node.lineno)
        elif isinstance(function, ast.Attribute):
            self._add_call(function.attr, node.lineno)
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

    def _is_relive_call(self, function: ast.expr) -> bool:
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return False
        return function.value.id in self._relive.modules or function.value.id in self._loop_variables

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Importing a module calls its top level."""
        imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in imported:
            for file in self._modules.imported_by(name):
                self._add_call(f"<module {file}>", node.lineno)

    visit_ImportFrom = visit_Import

    def _add_call(self, name: str, line: int) -> None:
        self._unit.calls.append(CallSite(name, self._path, line))
