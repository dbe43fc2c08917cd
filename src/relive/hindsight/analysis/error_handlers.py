"""Whether statements may run while an error ends a script: in `except` and `finally`, or called from there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from relive.hindsight.analysis.depth import AddedStatement
from relive.syntax_tree import parse

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SCOPES = (*_DEFINITIONS, ast.Lambda)


def may_handle_errors(files: Mapping[str, str], added: Sequence[AddedStatement]) -> bool:
    """Whether an added statement may run on the way out of an error; True if in doubt."""
    trees = {file: tree for file, text in files.items() if (tree := _parse(text)) is not None}
    handlers = {file: list(_handlers(tree)) for file, tree in trees.items()}
    defined = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)}
    called = {_called_name(node) for found in handlers.values() for one in found for node in ast.walk(one)}
    for statement in added:
        tree = trees.get(statement.file)
        if tree is None or any(_holds(one, statement.line) for one in handlers[statement.file]):
            return True
        if called & defined and any(
            _holds(node, statement.line) for node in ast.walk(tree) if isinstance(node, _SCOPES)
        ):
            return True
    return False


def _handlers(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements of every `except` and `finally`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.TryStar):
            yield from node.finalbody
            for handler in node.handlers:
                yield from handler.body


def _called_name(node: ast.AST) -> str | None:
    function = node.func if isinstance(node, ast.Call) else None
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", None)


def _holds(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _parse(text: str) -> ast.Module | None:
    try:
        return parse(text)
    except (SyntaxError, ValueError):
        return None
