"""What the expressions of a source file read: names with their attributes, and calls, scope by scope."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from relive.hindsight.analysis.reads.set_order import SET_ORDER, depends_on_set_order, names_of_sets
from relive.hindsight.analysis.reads.telling_arguments import UNSEEDED, drawing_library, telling_calls

Chain = tuple[str, ...]  # `model.fc.weight`; a constant key counts as an attribute: `state["step"]`


# Attributes of what `os.stat` returns that differ for each copy of a file. They count as calls, as does a result of
# `os.stat` that is used as a whole: `os.stat(path)[8]`.
_TIMES = ("st_mtime", "st_ctime", "st_atime")
FILE_ATTRIBUTES = frozenset({*_TIMES, *(f"{name}_ns" for name in _TIMES), "st_birthtime", "st_ino"})
WHOLE_STAT = "(whole)"
_STATS = ("stat", "lstat")


@dataclass(frozen=True, slots=True)
class ExpressionReads:
    """The chains that an expression loads and the functions it calls; `flowing`: those that reach its value.

    An object that is created (`Writer(time())`) has not the value of its arguments, so they don't flow.
    """

    chains: frozenset[Chain] = frozenset()
    calls: frozenset[str] = frozenset()
    flowing: frozenset[Chain] = frozenset()
    flowing_calls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A call with what each argument reads, by position or by name."""

    function: Chain
    arguments: Mapping[int | str, ExpressionReads]


@dataclass(slots=True)
class Scope:
    """A function, or the top level of a file."""

    name: str  # "" for the top level; with its class for a method
    parameters: list[str] = field(default_factory=list)
    assigned: list[tuple[list[Chain], ExpressionReads]] = field(default_factory=list)
    returned: list[ExpressionReads] = field(default_factory=list)
    calls: list[CallArguments] = field(default_factory=list)
    loads: list[tuple[int, Chain]] = field(default_factory=list)  # line, what is read there
    labelled: list[tuple[Chain, str]] = field(default_factory=list)  # a variable, and a text that it was made with
    called: list[tuple[int, str]] = field(default_factory=list)  # line, the dotted name of a function called there
    global_names: set[str] = field(default_factory=set)
    loop_variables: list[tuple[str, int, int, int]] = field(default_factory=list)  # name, line, its body's lines

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]

    def is_bound_by_loop(self, line: int, name: str, without: Collection[int]) -> bool:
        """Whether a loop around a line binds a variable anew in each turn; except loops that begin at some lines."""
        return any(
            name == own and first <= line <= last and begin not in without
            for own, begin, first, last in self.loop_variables
        )

    def sources_of(self, chains: Collection[Chain]) -> set[Chain]:
        """Returns these chains, and all those that their variables were computed from by assignments in this scope."""
        found, names = set(chains), {chain[0] for chain in chains}
        while True:
            more = {
                chain
                for targets, reads in self.assigned
                if any(target[0] in names for target in targets)
                for chain in reads.chains
            } - found
            if not more:
                return found
            found |= more
            names |= {chain[0] for chain in more}


@dataclass(slots=True)
class FileScopes:
    """The scopes of a file, and the names that it imports."""

    file: str
    scopes: list[Scope]
    imported: dict[str, str]  # the name in this file → the dotted name
    all_calls: frozenset[str]
    bound: frozenset[str]  # every name that is assigned, imported or defined somewhere in the file
    bare_calls: frozenset[str]  # functions that are called without arguments
    logged: dict[str, list[tuple[Scope, int, ExpressionReads]]]  # name → where a call logs a value under it

    def resolve(self, call: str) -> str:
        """Returns the dotted name of a function as imported: `perf_counter` → `time.perf_counter`."""
        if call.startswith(UNSEEDED):
            method = call.removeprefix(UNSEEDED)
            library = drawing_library(method, self.imported.values())
            return f"{UNSEEDED}{library}.{method}" if library else method
        first, dot, rest = call.partition(".")
        return self.imported.get(first, first) + dot + rest


@lru_cache(maxsize=2_000)
def read_scopes(file: str, text: str) -> FileScopes | None:
    """Reads a file; None if it can't be parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    nodes = list(ast.walk(tree))
    reader = _ScopeReader(names_of_sets(nodes))
    reader.visit(tree)
    imported = dict(pair for node in nodes for pair in _imported_names(node))
    found = [node for node in nodes if isinstance(node, ast.Call)]
    calls = frozenset(called for node in nodes for called in _calls_of(node))
    bare = frozenset(dotted_name(node.func) for node in found if not node.args and not node.keywords)
    return FileScopes(file, reader.scopes, imported, calls, frozenset(_bound_names(nodes)), bare, reader.logged)


def read_expression(node: ast.AST) -> ExpressionReads:
    """Returns what an expression reads."""
    chains, calls = set(_chains(node)), {called for n in ast.walk(node) for called in _calls_of(n)}
    made = {
        id(part)
        for n in ast.walk(node)
        if isinstance(n, ast.Call) and _is_class_name(dotted_name(n.func))
        for given in [*n.args, *(keyword.value for keyword in n.keywords)]
        for part in ast.walk(given)
    }
    if not made:
        return ExpressionReads(frozenset(chains), frozenset(calls), frozenset(chains), frozenset(calls))
    flowing = set(_chains(node, without=made))
    flowing_calls = {called for n in ast.walk(node) if id(n) not in made for called in _calls_of(n)}
    return ExpressionReads(frozenset(chains), frozenset(calls), frozenset(flowing), frozenset(flowing_calls))


def _calls_of(node: ast.AST) -> Iterator[str]:
    """What a node itself calls; not its parts."""
    match node:
        case ast.Call(func, args):
            yield (called := dotted_name(func))
            yield from telling_calls(node, called)
            yield from (whole for given in args for whole in _whole_stat(given))
        case ast.Attribute(_, attr) if attr in FILE_ATTRIBUTES:
            yield f".{attr}"
        case ast.Subscript(value):
            yield from _whole_stat(value)


def _whole_stat(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and (called := dotted_name(node.func)).rpartition(".")[2] in _STATS and "." in called:
        yield WHOLE_STAT + called


def _chains(node: ast.AST, without: set[int] | frozenset[int] = frozenset()) -> Iterator[Chain]:
    """The chains loaded in an expression. Of a method call, the object is read as a whole."""
    if id(node) in without:
        return
    if isinstance(node, ast.Call):
        called = chain_of(node.func)
        if called is not None:
            yield called[:-1] or called
        else:
            yield from _chains(node.func, without)
        for given in [*node.args, *(keyword.value for keyword in node.keywords)]:
            yield from _chains(given, without)
        return
    chain = chain_of(node)
    if chain is not None:
        yield chain
        return
    for child in ast.iter_child_nodes(node):
        yield from _chains(child, without)


def chain_of(node: ast.AST) -> Chain | None:
    """Returns a name with its attributes and constant keys; None for any other expression."""
    parts: list[str] = []
    while True:
        match node:
            case ast.Attribute(value, attr):
                parts.append(attr)
                node = value
            case ast.Subscript(value, ast.Constant(str(key))):
                parts.append(key)
                node = value
            case ast.Name(name):
                return (name, *reversed(parts))
            case _:
                return None


def dotted_name(node: ast.expr) -> str:
    """Returns the name of a function that is called, as it is written; of a method of a result, the method alone."""
    chain = chain_of(node)
    if chain is not None:
        return ".".join(chain)
    return f".{node.attr}" if isinstance(node, ast.Attribute) else ""


def _is_class_name(dotted: str) -> bool:
    return dotted.rpartition(".")[2][:1].isupper()


def _imported_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}".lstrip(".")


def _bound_names(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Name(name, ast.Store()) | ast.arg(name):
                yield name
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.Import() | ast.ImportFrom():
                yield from (name for name, _ in _imported_names(node))


class _ScopeReader(ast.NodeVisitor):
    """Collects the scopes of one file."""

    def __init__(self, sets: frozenset[str]) -> None:
        self._sets = sets  # variables and attributes
        self.scopes = [Scope("")]
        self.logged: dict[str, list[tuple[Scope, int, ExpressionReads]]] = {}
        self._scope = self.scopes[0]
        self._owner = ""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outside, owner = self._scope, self._owner
        given = node.args
        parameters = [one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
        self._scope = Scope(f"{owner}.{node.name}" if owner else node.name, parameters)
        self._owner = ""
        self.scopes.append(self._scope)
        for statement in node.body:
            self.visit(statement)
        self._scope, self._owner = outside, owner
        for part in [*node.decorator_list, *given.defaults, *(one for one in given.kw_defaults if one)]:
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        owner, self._owner = self._owner, node.name
        self.generic_visit(node)
        self._owner = owner

    def visit_Global(self, node: ast.Global) -> None:
        self._scope.global_names |= set(node.names)

    def visit_Return(self, node: ast.Return | ast.Yield | ast.YieldFrom) -> None:
        if node.value is not None:
            self._scope.returned.append(read_expression(node.value))
        self.generic_visit(node)

    visit_Yield = visit_YieldFrom = visit_Return

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assign(node.targets, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign([node.target], node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign([node.target], node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign([node.target], node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._assign([node.target], node.iter)
        lines = node.lineno, node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
        self._scope.loop_variables += [(chain[0], *lines) for chain in _target_chains(node.target) if len(chain) == 1]
        self.generic_visit(node)

    visit_AsyncFor = visit_For

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._assign([node.optional_vars], node.context_expr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = chain_of(node.func)
        self._scope.called.append((node.lineno, dotted_name(node.func)))
        if function is not None and (node.args or node.keywords):
            given: dict[int | str, ExpressionReads] = {
                at: read_expression(one) for at, one in enumerate(node.args) if not isinstance(one, ast.Starred)
            }
            given |= {one.arg: read_expression(one.value) for one in node.keywords if one.arg}
            self._scope.calls.append(CallArguments(function, given))
        if function is not None and len(function) > 1:
            self._scope.loads.append((node.lineno, function[:-1]))  # a method may read all of its object
        self._note_logged(node)
        self.generic_visit(node)

    def _note_logged(self, node: ast.Call) -> None:
        """Notes `log("name", value)`, in any logger's words, and `log({"name": value})`."""
        if len(node.args) > 1 and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            self._add_logged(node.args[0].value, node.args[1])
        for given in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        self._add_logged(key.value, value)

    def _add_logged(self, name: str, value: ast.expr) -> None:
        reads = read_expression(value)
        if depends_on_set_order(value, self._sets):
            reads = replace(reads, flowing_calls=reads.flowing_calls | {SET_ORDER})
        self.logged.setdefault(name, []).append((self._scope, value.lineno, reads))

    def visit_Expr(self, node: ast.Expr) -> None:
        if depends_on_set_order(node.value, self._sets):
            self._scope.called.append((node.lineno, SET_ORDER))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._scope.loads.append((node.lineno, (node.id,)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = chain_of(node)
        if chain is not None and isinstance(node.ctx, ast.Load):
            self._scope.loads.append((node.lineno, chain))
        else:
            self.generic_visit(node)

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        match targets, value:
            case [ast.Tuple(elts=several)], ast.Tuple(elts=values) if len(several) == len(values):
                for target, part in zip(several, values, strict=True):
                    self._assign([target], part)
                return
        chains = [chain for target in targets for chain in _target_chains(target)]
        if isinstance(value, ast.Call):
            texts = [one.value for one in value.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            self._scope.labelled += [(chain, text) for chain in chains for text in texts]
        if chains:
            self._scope.assigned.append((chains, read_expression(value)))


def _target_chains(target: ast.expr) -> Iterator[Chain]:
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _target_chains(part)
    elif isinstance(target, ast.Starred):
        yield from _target_chains(target.value)
    elif (chain := chain_of(target)) is not None:
        yield chain
    elif isinstance(target, ast.Subscript) and (chain := chain_of(target.value)) is not None:
        yield chain  # `times[step] = …` changes the container
