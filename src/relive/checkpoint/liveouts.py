"""Which variables a loop leaves behind: set or changed in its body, and read later or by its next turn."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType

Loop = ast.For | ast.AsyncFor | ast.While | ast.If  # `if block.step_into():` is skipped like a loop
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.If)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def live_outs(frame: FrameType, line: int) -> tuple[str, ...]:
    """The variables that the loop at a line of a running function leaves to others; empty when its source is gone."""
    return _live_outs(frame.f_code.co_filename, line)


def set_in(frame: FrameType, line: int) -> tuple[str, ...]:
    """Every variable that the loop at a line of a running function sets or changes, whoever reads it."""
    return _set_in(frame.f_code.co_filename, line)


def rebound_in(frame: FrameType, line: int) -> frozenset[str]:
    """The variables that the loop at a line binds anew, rather than changing what they hold."""
    return _rebound_in(frame.f_code.co_filename, line)


def used_in(frame: FrameType, line: int) -> frozenset[str]:
    """The variables that the loop at a line reads, and does not bind itself."""
    return _used_in(frame.f_code.co_filename, line)


@lru_cache(maxsize=256)
def _used_in(filename: str, line: int) -> frozenset[str]:
    tree = _tree(filename)
    found = _find(tree, line) if tree is not None else None
    if found is None:
        return frozenset()
    body = [name for statement in found[1].body for name in _names(statement, ast.Load)]
    return frozenset(body) - frozenset(_stored(found[1]))


@lru_cache(maxsize=256)
def _rebound_in(filename: str, line: int) -> frozenset[str]:
    tree = _tree(filename)
    found = _find(tree, line) if tree is not None else None
    return frozenset(_stored(found[1])) if found is not None else frozenset()


@lru_cache(maxsize=256)
def _live_outs(filename: str, line: int) -> tuple[str, ...]:
    tree = _tree(filename)
    return of_loop(tree, line) if tree is not None else ()


@lru_cache(maxsize=256)
def _set_in(filename: str, line: int) -> tuple[str, ...]:
    tree = _tree(filename)
    found = _find(tree, line) if tree is not None else None
    return tuple(dict.fromkeys([*_stored(found[1]), *_changed(found[1])])) if found is not None else ()


def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def of_loop(tree: ast.Module, line: int) -> tuple[str, ...]:
    """The live-outs of the loop whose header is at a line."""
    found = _find(tree, line)
    if found is None:
        return ()
    scope, loop = found
    stored, carried = _stored(loop), set(_carried(loop))
    outside = set(_reads_outside(scope, loop))
    names = dict.fromkeys(name for name in [*stored, *_changed(loop)] if name in outside or name in carried)
    return tuple(dict.fromkeys([*names, *_changed_by_functions(tree, loop)]))


def _changed_by_functions(tree: ast.Module, loop: Loop) -> Iterator[str]:
    """Globals that functions of the file bind or change: the loop may call them."""
    tops = set(_names(tree, ast.Store)) | set(_names(tree, ast.Load))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not _holds(function, loop):
            declared = {n for node in ast.walk(function) if isinstance(node, ast.Global) for n in node.names}
            own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            own |= {name for name in _names(function, ast.Store) if name not in declared}
            yield from (name for name in [*declared, *_changed(function)] if name not in own and name in tops)


def _holds(function: ast.AST, loop: ast.AST) -> bool:
    return any(node is loop for node in ast.walk(function))


def _find(tree: ast.Module, line: int) -> tuple[Scope, Loop] | None:
    """The innermost loop whose header covers the line, and the function or module it belongs to."""
    best: tuple[Scope, Loop] | None = None
    todo: list[tuple[ast.AST, Scope]] = [(tree, tree)]
    while todo:
        node, scope = todo.pop()
        if isinstance(node, _LOOPS) and _covers(node, line) and (best is None or node.lineno >= best[1].lineno):
            best = scope, node
        inner = node if isinstance(node, _FUNCTIONS) else scope
        todo.extend((child, inner) for child in ast.iter_child_nodes(node))
    return best


def _covers(loop: Loop, line: int) -> bool:
    first = loop.body[0].lineno
    return loop.lineno <= line < first or line == loop.lineno == first


def _names(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context):
            yield inner.id


def _stored(loop: Loop) -> list[str]:
    caught = [node.name for node in ast.walk(loop) if isinstance(node, ast.ExceptHandler) and node.name]
    return [*_names(loop, ast.Store), *caught]


def _changed(loop: ast.AST) -> Iterator[str]:
    """Names whose objects may be changed in place: receivers of method calls, and owners of assigned parts."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _owner(node.func.value)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield from _owner(node.value)


def _owner(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _carried(loop: Loop) -> Iterator[str]:
    """Names that a turn may read from the turn before it: augmented, changed in place, or read before they are set."""
    yield from _changed(loop)
    first_store: dict[str, tuple[int, int]] = {}
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign):
            yield from _owner(node.target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            place = (node.lineno, node.col_offset)
            first_store[node.id] = min(first_store.get(node.id, place), place)
    conditional = set(_stored_conditionally(loop))
    reads = [
        n for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in first_store
    ]
    # On the same line too: in x = f(x) the store stands before the read.
    yield from (n.id for n in reads if n.id in conditional or n.lineno <= first_store[n.id][0])


def _stored_conditionally(loop: Loop) -> Iterator[str]:
    """A name set only in some turns keeps the value of an earlier one in the others."""
    for node in ast.walk(loop):
        if isinstance(node, ast.If | ast.Try | ast.While | ast.For | ast.AsyncFor | ast.Match) and node is not loop:
            yield from _names(node, ast.Store)


def _reads_outside(scope: Scope, loop: Loop) -> Iterator[str]:
    todo: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        if node is loop:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        todo.extend(ast.iter_child_nodes(node))
    for statement in loop.orelse:
        yield from _names(statement, ast.Load)
