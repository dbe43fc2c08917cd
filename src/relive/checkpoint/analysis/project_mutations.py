"""Which attributes and module variables the project's own source mutates, by static analysis."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType

from relive import syntax_tree

_LIBRARY_PATHS = ("/site-packages/", "/dist-packages/", "<frozen", "/lib/python3")
# Built-in functions that don't mutate their arguments; `next` and `iter` are not among them.
_PURE_BUILTINS = frozenset(
    "abs all any bool bytes callable dict enumerate float format frozenset hash id int isinstance len list max min "
    "print range repr reversed round set sorted str sum tuple type zip".split()
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@lru_cache(maxsize=8192)
def is_library_file(filename: str) -> bool:
    """Whether a file belongs to Python, to an installed library, or to relive itself."""
    own = sys.modules["relive"].__file__ or ""
    return any(part in filename for part in _LIBRARY_PATHS) or filename.startswith(own.removesuffix("__init__.py"))


@lru_cache(maxsize=8192)
def _is_project_module(name: str, file: str | None) -> bool:
    # Some libraries create modules at run time, whose `__file__` is not a path.
    return name == "__main__" or (file is not None and os.path.isabs(file) and not is_library_file(file))


def is_project_module(name: str) -> bool:
    """Whether the module of this name is one of the project's own."""
    return _is_project_module(name, getattr(sys.modules.get(name), "__file__", None))


def project_modules() -> tuple[ModuleType, ...]:
    """Returns the project's own modules that are loaded."""
    return _project_modules(len(sys.modules))


@lru_cache(maxsize=2)
def _project_modules(_count: int) -> tuple[ModuleType, ...]:
    """Searches again only if the number of loaded modules has changed: there are thousands, and the training waits."""
    found = [module for name, module in list(sys.modules.items()) if is_project_module(name) and module is not None]
    return tuple({id(module): module for module in found}.values())


@lru_cache(maxsize=2)
def _project_files(_count: int) -> tuple[str, ...]:
    return tuple(sorted({file for module in _project_modules(_count) if (file := getattr(module, "__file__", None))}))


def project_files() -> tuple[str, ...]:
    """Returns the files of the project's own modules that are loaded."""
    return _project_files(len(sys.modules))


def project_sources() -> Iterator[str]:
    """Yields the sources of the project's own modules that are loaded."""
    for file in project_files():
        yield "".join(linecache.getlines(file))


@lru_cache(maxsize=256)
def parse_file(filename: str) -> ast.Module | None:
    """Returns the syntax tree of a file; None if it has no source or can't be parsed."""
    try:
        tree = syntax_tree.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    return tree if tree.body else None


def mutated_attributes() -> frozenset[str] | None:
    """Returns the attributes that the project binds or mutates outside of `__init__`; None: any may be."""
    files = project_files()
    return _mutated_attributes_in(files) if files else None


@lru_cache(maxsize=16)
def _mutated_attributes_in(files: tuple[str, ...]) -> frozenset[str] | None:
    found: set[str] = set()
    for file in files:
        tree = parse_file(file)
        if tree is None or _may_set_any_attribute(tree):
            return None
        found.update(_mutated_attribute_names(tree))
    return frozenset(found)


def rebound_attributes() -> frozenset[str] | None:
    """Returns the attributes that the project binds outside of `__init__`; None: any may be."""
    files = project_files()
    return _rebound_attributes_in(files) if files else None


@lru_cache(maxsize=16)
def _rebound_attributes_in(files: tuple[str, ...]) -> frozenset[str] | None:
    trees = [parse_file(file) for file in files]
    if any(tree is None or _may_set_any_attribute(tree) for tree in trees):
        return None
    return frozenset(name for tree in trees if tree is not None for name in _rebound_attribute_names(tree))


def _rebound_attribute_names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            continue
        if (
            isinstance(child, ast.Attribute)
            and isinstance(child.ctx, ast.Store)
            and not isinstance(node, ast.AugAssign)
        ):
            yield child.attr
        yield from _rebound_attribute_names(child)


def _may_set_any_attribute(tree: ast.Module) -> bool:
    """Whether the file uses `setattr`, `vars(…)`, `exec` or the like, which may set any attribute."""
    names = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    dicts = any(isinstance(node, ast.Attribute) and node.attr == "__dict__" for node in ast.walk(tree))
    return dicts or bool(names & {"setattr", "delattr", "vars", "exec"})


def _mutated_attribute_names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            yield from _mutations_outside_self(child)
            continue
        yield from _attributes_mutated_by(child)
        yield from _mutated_attribute_names(child)


def _attributes_mutated_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=attr, ctx=ast.Store() | ast.Del()):
            yield attr
        case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
            yield from _attribute_chain(owner)
        case ast.Call(func=function, args=args, keywords=keywords):
            if isinstance(function, ast.Attribute):
                yield from _attribute_chain(function.value)
            # An argument may be mutated by the function that receives it.
            for argument in [*args, *(keyword.value for keyword in keywords)]:
                yield from _attribute_chain(argument)
        case ast.Assign(value=value) | ast.Return(value=value) | ast.Yield(value=value) if value is not None:
            yield from _attribute_chain(value)  # an object that gets another name may be mutated by that name
        case ast.For(iter=items) | ast.comprehension(iter=items):
            yield from _attribute_chain(items)


def _mutations_outside_self(init: ast.FunctionDef) -> Iterator[str]:
    """Yields what `__init__` mutates besides the new object, as in `Net.count += 1`."""
    self_name = init.args.args[0].arg if init.args.args else "self"
    for node in ast.walk(init):
        owner = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
        if owner is not None and not (isinstance(owner, ast.Name) and owner.id == self_name):
            yield from _attributes_mutated_by(node)


def _attribute_chain(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Starred):
        node = node.value
    if isinstance(node, ast.Attribute):
        yield node.attr
        yield from _attribute_chain(node.value)


# --- variables of modules ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def mutated_globals(filename: str) -> frozenset[str]:
    """Returns the variables of a module that its functions bind or mutate."""
    tree = parse_file(filename)
    return frozenset(globals_mutated_by_functions(tree, None)) if tree is not None else frozenset()


@lru_cache(maxsize=256)
def escaping_from_functions(filename: str) -> frozenset[str]:
    """Returns the names whose objects escape from functions of a file."""
    return frozenset(name for function in _functions_in(filename) for name in escaping_names(function))


@lru_cache(maxsize=256)
def names_read_by_functions(filename: str) -> frozenset[str]:
    """Returns the names that functions of a file read."""
    return frozenset(name for function in _functions_in(filename) for name in names_in_context(function, ast.Load))


def _functions_in(filename: str) -> list[ast.AST]:
    tree = parse_file(filename)
    return [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)] if tree is not None else []


def globals_mutated_by_functions(tree: ast.Module, loop: ast.AST | None) -> Iterator[str]:
    """Yields the globals that functions of the file bind or mutate, except the function that contains the loop."""
    module_names = set(names_in_context(tree, ast.Store)) | set(names_in_context(tree, ast.Load))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not _contains(function, loop):
            declared = {n for node in ast.walk(function) if isinstance(node, ast.Global) for n in node.names}
            local = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            local |= {name for name in names_in_context(function, ast.Store) if name not in declared}
            yield from (n for n in [*declared, *mutated_in_place(function)] if n not in local and n in module_names)


def _contains(function: ast.AST, loop: ast.AST | None) -> bool:
    return loop is not None and any(node is loop for node in ast.walk(function))


def names_in_context(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context):
            yield inner.id


def mutated_in_place(node: ast.AST) -> Iterator[str]:
    """Yields the names whose objects may be mutated: receivers of method calls, and owners of assigned parts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            yield from root_name(inner.func.value)
        elif isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store | ast.Del):
            yield from root_name(inner.value)
        if isinstance(inner, ast.Call):
            yield from (n for k in inner.keywords if k.arg == "out" for n in root_name(k.value))


def escaping_names(node: ast.AST) -> Iterator[str]:
    """Yields the names whose objects escape: passed to a function or bound to another name, which may mutate them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and not (isinstance(inner.func, ast.Name) and inner.func.id in _PURE_BUILTINS):
            for argument in [*inner.args, *(keyword.value for keyword in inner.keywords)]:
                yield from root_name(argument.value if isinstance(argument, ast.Starred) else argument)
        elif isinstance(inner, ast.Assign | ast.Return | ast.For | ast.NamedExpr):
            value = inner.iter if isinstance(inner, ast.For) else inner.value
            for part in value.elts if isinstance(value, ast.Tuple) else [value]:
                yield from root_name(part) if part is not None else ()


def root_name(node: ast.expr) -> Iterator[str]:
    """Yields `x` for `x`, `x.a` and `x[i].b`; nothing for other expressions."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
