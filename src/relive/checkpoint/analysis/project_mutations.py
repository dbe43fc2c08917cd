"""Which files and modules are the project's own, and which variables their functions mutate, by static analysis."""

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
_STARTED_BY_PYTHON = ("sitecustomize", "usercustomize")  # wherever they are, they belong to the machine


@lru_cache(maxsize=8192)
def is_library_file(filename: str) -> bool:
    """Whether a file belongs to Python, to an installed library, or to relive itself."""
    own = sys.modules["relive"].__file__ or ""
    return any(part in filename for part in _LIBRARY_PATHS) or filename.startswith(own.removesuffix("__init__.py"))


@lru_cache(maxsize=8192)
def _is_project_module(name: str, file: str | None) -> bool:
    # Some libraries create modules at run time, whose `__file__` is not a path.
    is_own = file is not None and os.path.isabs(file) and not is_library_file(file)
    return name == "__main__" or (is_own and name not in _STARTED_BY_PYTHON)


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


def root_name(node: ast.expr) -> Iterator[str]:
    """Yields `x` for `x`, `x.a` and `x[i].b`; nothing for other expressions."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
