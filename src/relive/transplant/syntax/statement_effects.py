"""What a statement reads and what it binds, told from its header alone."""

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
_WORDS_OF_PYTHON = frozenset(
    "and as assert async await break case class continue def del elif else except exec finally for from global if "
    "import in is lambda match nonlocal not or pass print raise return try while with yield None True False".split()
)
_CHANGES_NOTHING = frozenset(
    "item tolist cpu detach numpy mean sum max min size dim keys values items get format".split()
)


@dataclass(frozen=True, slots=True)
class Effects:
    """The names that a header reads, those that it binds, and those whose objects it may change in place."""

    reads: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    unbinds: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()  # said to be global or nonlocal
    star: bool = False  # binds names that can't be known: from … import *
    known: bool = True  # False: read by eye, because the running Python doesn't parse it


def effects(tree: Tree, node: Node) -> Effects:
    """The effects of a node's header, without what is inside it."""
    return _effects(node.kind, head_at_margin(tree, node))


def head_at_margin(tree: Tree, node: Node) -> str:
    """The header as if it stood at the margin; only decorators make it more than one logical line."""
    head = tree.head(node)
    return re.sub(rf"([\r\n]){node.indent}", r"\1", head) if head.startswith("@") and node.indent else head


@lru_cache(maxsize=8192)
def _effects(kind: str, head: str) -> Effects:
    parsed = _parsed(kind, head)
    if parsed is None:
        return _by_eye(kind, head)
    reader = _EffectReader()
    for statement in parsed:
        reader.visit(statement)
    return reader.told()


def _parsed(kind: str, head: str) -> list[ast.AST] | None:
    """The header as a statement of its own."""
    source = {
        "elif": f"if{head[4:]} pass",
        "else": "pass",
        "finally": "pass",
        "except": f"try: pass\n{head} pass",
        "case": f"match _relive_:\n {head} pass",
        "match": f"{head}\n case _: pass",
        "try": "pass",
    }.get(kind, f"{head} pass" if kind else head)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in someone's strings
            return list(ast.parse(source).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _EffectReader(ast.NodeVisitor):
    """Collects names; what comprehensions, lambdas and nested functions bind for themselves stays inside."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.binds: set[str] = set()
        self.changes: set[str] = set()
        self.unbinds: set[str] = set()
        self.elsewhere: set[str] = set()
        self.star = False
        self.own: list[set[str]] = []  # names bound by the comprehensions and lambdas around

    def told(self) -> Effects:
        hidden = {"_relive_"}
        return Effects(
            frozenset(self.reads - hidden),
            frozenset(self.binds - hidden),
            frozenset(self.changes - hidden),
            frozenset(self.unbinds),
            frozenset(self.elsewhere),
            self.star,
        )

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.binds.add(node.id)
        elif not any(node.id in own for own in self.own):
            (self.unbinds if isinstance(node.ctx, ast.Del) else self.reads).add(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.reads.add(node.target.id)
            self.changes.add(node.target.id)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.target)
            self.visit(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._change(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._change(node)
        self.generic_visit(node)

    def _change(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.changes |= _root_name(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr not in _CHANGES_NOTHING:
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
        self._inside({argument.arg for argument in arguments_of(node.args)}, [node.body])

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        own = {name.id for part in node.generators for name in ast.walk(part.target) if isinstance(name, ast.Name)}
        self.visit(node.generators[0].iter)
        inner: list[ast.AST] = [part for each in node.generators for part in each.ifs]
        inner += [each.iter for each in node.generators[1:]]
        inner += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._inside(own, inner)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def _inside(self, own: set[str], parts: list[ast.AST]) -> None:
        self.own.append(own)
        for part in parts:
            self.visit(part)
        self.own.pop()


def arguments_of(arguments: ast.arguments) -> Iterator[ast.arg]:
    """Every parameter, in order."""
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None)


def _root_name(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


@lru_cache(maxsize=1024)
def parameters(head: str) -> frozenset[str]:
    """The parameters of a function, from its header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ast.parse(f"{head} pass").body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(re.findall(r"\w+", head.partition("(")[2]))
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return frozenset()
    return frozenset(argument.arg for argument in arguments_of(found.args))


def _by_eye(kind: str, head: str) -> Effects:
    """Names of a header that the running Python doesn't parse, such as `print x` of Python 2."""
    names = {name for name in _NAME.findall(head) if name[0] not in "\"'#"} - _WORDS_OF_PYTHON
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
