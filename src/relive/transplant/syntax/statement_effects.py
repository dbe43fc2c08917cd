"""Which names a statement reads, binds and changes, from its header alone."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from relive.transplant.syntax.statement_tree import STRING, Node, Tree

_NAME = re.compile(rf"(?:{STRING})|#[^\r\n]*|(?<![\w.])[^\W\d]\w*", re.DOTALL)
_TARGETS = re.compile(r"^\(?([^\W\d]\w*(?:\s*,\s*[^\W\d]\w*)*)\)?\s*(?:[-+*/|&^%@]|//|\*\*|<<|>>)?=(?!=)")
_KEYWORDS = frozenset(
    "and as assert async await break case class continue def del elif else except exec finally for from global if "
    "import in is lambda match nonlocal not or pass print raise return try while with yield None True False".split()
)
_PURE_METHODS = frozenset("item tolist cpu detach numpy mean sum max min size dim keys values items get format".split())


@dataclass(frozen=True, slots=True)
class Effects:
    """The names that a header reads, binds and unbinds, and the names of objects it may change in place."""

    reads: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    unbinds: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()  # declared global or nonlocal
    attributes: frozenset[str] = frozenset()  # attributes that it assigns: self.net
    star: bool = False  # whether it binds unknown names: from … import *
    annotations: frozenset[str] = frozenset()  # names in the annotation of a variable: classes and modules read them
    known: bool = True  # False if the running Python can't parse it, and regular expressions had to do


def effects(tree: Tree, node: Node) -> Effects:
    """Returns the effects of a node's header, without those of the statements inside it."""
    return _effects(node.kind, dedented_head(tree, node))


def dedented_head(tree: Tree, node: Node) -> str:
    """Returns the header without indentation; only decorators make it more than one logical line."""
    head = tree.head(node)
    return re.sub(rf"([\r\n]){node.indent}", r"\1", head) if head.startswith("@") and node.indent else head


@lru_cache(maxsize=8192)
def _effects(kind: str, head: str) -> Effects:
    parsed = _parse_header(kind, head)
    if parsed is None:
        return _effects_by_regex(kind, head)
    reader = _EffectReader()
    for statement in parsed:
        reader.visit(statement)
    return reader.effects()


def _parse_header(kind: str, head: str) -> list[ast.stmt] | None:
    """Parses the header as a complete statement."""
    source = {
        "elif": f"if{head[4:]} pass",
        "else": "pass",
        "finally": "pass",
        "except": f"try: pass\n{head} pass",
        "case": f"match _relive_:\n {head} pass",
        "match": f"{head}\n case _: pass",
        "try": "pass",
    }.get(kind, f"{head} pass" if kind else head)
    return parse_quietly(source)


def parse_quietly(source: str) -> list[ast.stmt] | None:
    """Parses users' code without warnings, as for invalid escapes in strings; None if this Python can't parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _EffectReader(ast.NodeVisitor):
    """Collects names; names that comprehensions, lambdas and nested functions bind locally are left out."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.binds: set[str] = set()
        self.changes: set[str] = set()
        self.unbinds: set[str] = set()
        self.elsewhere: set[str] = set()
        self.attributes: set[str] = set()
        self.annotations: set[str] = set()
        self.star = False
        self.local: list[set[str]] = []  # names bound by the enclosing comprehensions and lambdas

    def effects(self) -> Effects:
        hidden = {"_relive_"}
        return Effects(
            frozenset(self.reads - hidden),
            frozenset(self.binds - hidden),
            frozenset(self.changes - hidden),
            frozenset(self.unbinds),
            frozenset(self.elsewhere),
            frozenset(self.attributes),
            self.star,
            frozenset(self.annotations),
        )

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.binds.add(node.id)
        elif not any(node.id in names for names in self.local):
            (self.unbinds if isinstance(node.ctx, ast.Del) else self.reads).add(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.reads.add(node.target.id)
            self.changes.add(node.target.id)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.annotations |= {each.id for each in ast.walk(node.annotation) if isinstance(each, ast.Name)}
        if node.value is not None:
            self.visit(node.target)
            self.visit(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._change(node)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            self.attributes.add(f"{node.value.id}.{node.attr}")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._change(node)
        self.generic_visit(node)

    def _change(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.changes |= _root_name(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr not in _PURE_METHODS:
            self.changes |= _root_name(node.func)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.binds |= {alias.asname or alias.name.split(".")[0] for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.star = any(alias.name == "*" for alias in node.names)
        self.binds |= {alias.asname or alias.name for alias in node.names if alias.name != "*"}

    def visit_Global(self, node: ast.Global) -> None:
        self.elsewhere |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.elsewhere |= set(node.names)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.binds.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.binds |= {node.name} if node.name else set()
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self.binds |= {node.name} if node.name else set()

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.binds |= {node.rest} if node.rest else set()
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.binds.add(node.name)
        for part in (*node.decorator_list, *node.args.defaults, *(part for part in node.args.kw_defaults if part)):
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.binds.add(node.name)
        for part in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(part)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in (*node.args.defaults, *(part for part in node.args.kw_defaults if part)):
            self.visit(part)
        self._visit_inside({argument.arg for argument in arguments_of(node.args)}, [node.body])

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        names = {name.id for part in node.generators for name in ast.walk(part.target) if isinstance(name, ast.Name)}
        self.visit(node.generators[0].iter)
        inner: list[ast.AST] = [part for each in node.generators for part in each.ifs]
        inner += [each.iter for each in node.generators[1:]]
        inner += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._visit_inside(names, inner)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def _visit_inside(self, names: set[str], parts: list[ast.AST]) -> None:
        self.local.append(names)
        for part in parts:
            self.visit(part)
        self.local.pop()


def arguments_of(arguments: ast.arguments) -> Iterator[ast.arg]:
    """Yields every parameter, in order."""
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None)


def _root_name(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


@lru_cache(maxsize=1024)
def parameter_names(head: str) -> frozenset[str]:
    """Returns the parameters of a function, from its header."""
    parsed = parse_quietly(f"{head} pass")
    if parsed is None:
        return frozenset(re.findall(r"\w+", head.partition("(")[2]))
    function = parsed[0]
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return frozenset()
    return frozenset(argument.arg for argument in arguments_of(function.args))


def _effects_by_regex(kind: str, head: str) -> Effects:
    """Estimates the effects of a header that the running Python can't parse, such as `print x` of Python 2."""
    names = {name for name in _NAME.findall(head) if name[0] not in "\"'#"} - _KEYWORDS
    binds: set[str] = set()
    found = _TARGETS.match(head)
    if found:
        binds = {name.strip() for name in found.group(1).split(",")}
    if kind == "for":
        binds = set(re.findall(r"\w+", head.removeprefix("async").strip()[3:].partition(" in ")[0]))
    if kind in ("def", "class") or head.startswith(("import ", "from ")):
        binds = {re.findall(r"\w+", part)[-1] for part in head.partition("(")[0].split(",") if re.findall(r"\w+", part)}
    elif " as " in head:
        binds |= set(re.findall(r" as\s+(\w+)", head))
    elif kind == "except" and "," in head:
        binds |= set(re.findall(r",\s*(\w+)\s*:", head))
    return Effects(frozenset(names - binds), frozenset(binds), known=False)
