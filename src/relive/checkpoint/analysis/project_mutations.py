"""What the project's own source changes while it runs: attributes of objects, and variables of modules."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType

from relive import syntax_tree

_FOREIGN = ("/site-packages/", "/dist-packages/", "<frozen", "/lib/python3")
# Built-in functions that change nothing that they are given; `next` and `iter` are not among them.
_HARMLESS = frozenset(
    "abs all any bool bytes callable dict enumerate float format frozenset hash id int isinstance len list max min "
    "print range repr reversed round set sorted str sum tuple type zip".split()
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@lru_cache(maxsize=8192)
def is_foreign(filename: str) -> bool:
    """Code of Python, of a library, or of relive itself."""
    own = sys.modules["relive"].__file__ or ""
    return any(part in filename for part in _FOREIGN) or filename.startswith(own.removesuffix("__init__.py"))


@lru_cache(maxsize=8192)
def _is_projects(name: str, file: str | None) -> bool:
    # Some libraries make modules up, with a file that is no path.
    return name == "__main__" or (file is not None and os.path.isabs(file) and not is_foreign(file))


def is_projects(name: str) -> bool:
    """Is the module of this name one of the project's own?"""
    return _is_projects(name, getattr(sys.modules.get(name), "__file__", None))


def project_modules() -> tuple[ModuleType, ...]:
    """The project's own modules that are loaded."""
    return _project_modules(len(sys.modules))


@lru_cache(maxsize=2)
def _project_modules(_count: int) -> tuple[ModuleType, ...]:
    """Looked for anew when their number has changed: there are thousands, and the training waits."""
    found = [module for name, module in list(sys.modules.items()) if is_projects(name) and module is not None]
    return tuple({id(module): module for module in found}.values())


@lru_cache(maxsize=2)
def _files(_count: int) -> tuple[str, ...]:
    return tuple(sorted({file for module in _project_modules(_count) if (file := file_of(module))}))


def project_files() -> tuple[str, ...]:
    """The files of the project's own modules that are loaded."""
    return _files(len(sys.modules))


def project_texts() -> Iterator[str]:
    """The sources of the project's own modules that are loaded."""
    for file in project_files():
        yield "".join(linecache.getlines(file))


def file_of(module: ModuleType) -> str | None:
    return getattr(module, "__file__", None)


@lru_cache(maxsize=256)
def tree_of(filename: str) -> ast.Module | None:
    try:
        tree = syntax_tree.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    return tree if tree.body else None


def changing_attributes() -> frozenset[str] | None:
    """The attributes that code of the project sets or changes outside of `__init__`; None: any may change."""
    files = project_files()
    return _changing_in(files) if files else None


@lru_cache(maxsize=16)
def _changing_in(files: tuple[str, ...]) -> frozenset[str] | None:
    found: set[str] = set()
    for file in files:
        tree = tree_of(file)
        if tree is None or _sets_by_name(tree):
            return None
        found.update(_changes(tree))
    return frozenset(found)


def rebound_attributes() -> frozenset[str] | None:
    """The attributes that code of the project outside of `__init__` binds anew."""
    files = project_files()
    return _rebound_in(files) if files else None


@lru_cache(maxsize=16)
def _rebound_in(files: tuple[str, ...]) -> frozenset[str] | None:
    trees = [tree_of(file) for file in files]
    if any(tree is None or _sets_by_name(tree) for tree in trees):
        return None
    return frozenset(name for tree in trees if tree is not None for name in _rebound(tree))


def _rebound(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            continue
        if (
            isinstance(child, ast.Attribute)
            and isinstance(child.ctx, ast.Store)
            and not isinstance(node, ast.AugAssign)
        ):
            yield child.attr
        yield from _rebound(child)


def _sets_by_name(tree: ast.Module) -> bool:
    """`setattr(thing, name, …)` and `vars(thing)[…]` may change anything."""
    names = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    dicts = any(isinstance(node, ast.Attribute) and node.attr == "__dict__" for node in ast.walk(tree))
    return dicts or bool(names & {"setattr", "delattr", "vars", "exec"})


def _changes(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            yield from _changes_of_others(child)
            continue
        yield from _changed_by(child)
        yield from _changes(child)


def _changed_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=attr, ctx=ast.Store() | ast.Del()):
            yield attr
        case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
            yield from _attribute(owner)
        case ast.Call(func=function, args=args, keywords=keywords):
            if isinstance(function, ast.Attribute):
                yield from _attribute(function.value)
            # What is given away may be changed by whoever gets it.
            for given in [*args, *(keyword.value for keyword in keywords)]:
                yield from _attribute(given)
        case ast.Assign(value=value) | ast.Return(value=value) | ast.Yield(value=value) if value is not None:
            yield from _attribute(value)  # and so may what has another name from now on
        case ast.For(iter=items) | ast.comprehension(iter=items):
            yield from _attribute(items)


def _changes_of_others(init: ast.FunctionDef) -> Iterator[str]:
    """What `__init__` changes besides the object that it makes: `Net.made += 1`."""
    own = init.args.args[0].arg if init.args.args else "self"
    for node in ast.walk(init):
        owner = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
        if owner is not None and not (isinstance(owner, ast.Name) and owner.id == own):
            yield from _changed_by(node)


def _attribute(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    if isinstance(node, ast.Attribute):
        yield node.attr
        yield from _attribute(node.value)


# --- variables of modules ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def changed_globals(filename: str) -> frozenset[str]:
    """Variables of a module that its functions bind anew or change."""
    tree = tree_of(filename)
    return frozenset(changed_by_functions(tree, None)) if tree is not None else frozenset()


@lru_cache(maxsize=256)
def given_by_functions(filename: str) -> frozenset[str]:
    """Names whose objects functions of a file give to others."""
    tree = tree_of(filename)
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)] if tree is not None else []
    return frozenset(name for function in functions for name in given_away(function))


@lru_cache(maxsize=256)
def read_by_functions(filename: str) -> frozenset[str]:
    """Names that functions of a file read."""
    tree = tree_of(filename)
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)] if tree is not None else []
    return frozenset(name for function in functions for name in names(function, ast.Load))


def changed_by_functions(tree: ast.Module, loop: ast.AST | None) -> Iterator[str]:
    """Globals that functions of the file bind or change, but for the function that holds the loop."""
    tops = set(names(tree, ast.Store)) | set(names(tree, ast.Load))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not _holds(function, loop):
            declared = {n for node in ast.walk(function) if isinstance(node, ast.Global) for n in node.names}
            own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            own |= {name for name in names(function, ast.Store) if name not in declared}
            yield from (n for n in [*declared, *changed_in_place(function)] if n not in own and n in tops)


def _holds(function: ast.AST, loop: ast.AST | None) -> bool:
    return loop is not None and any(node is loop for node in ast.walk(function))


def names(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context):
            yield inner.id


def changed_in_place(node: ast.AST) -> Iterator[str]:
    """Names whose objects may be changed in place: receivers of method calls, and owners of assigned parts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            yield from owner(inner.func.value)
        elif isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store | ast.Del):
            yield from owner(inner.value)
        if isinstance(inner, ast.Call):
            yield from (n for k in inner.keywords if k.arg == "out" for n in owner(k.value))


def given_away(node: ast.AST) -> Iterator[str]:
    """Names whose objects are given to a function or get another name, either of which may change them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and not (isinstance(inner.func, ast.Name) and inner.func.id in _HARMLESS):
            for given in [*inner.args, *(keyword.value for keyword in inner.keywords)]:
                yield from owner(given.value if isinstance(given, ast.Starred) else given)
        elif isinstance(inner, ast.Assign | ast.Return | ast.For | ast.NamedExpr):
            value = inner.iter if isinstance(inner, ast.For) else inner.value
            for part in value.elts if isinstance(value, ast.Tuple) else [value]:
                yield from owner(part) if part is not None else ()


def owner(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
