"""Which variables a loop leaves behind: set or changed in its body, and read later or by its next iteration."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType

from relive.checkpoint.analysis.loop_carried import carried
from relive.checkpoint.analysis.project_mutations import (
    changed_by_functions,
    changed_in_place,
    given_away,
    given_by_functions,
    names,
    tree_of,  # fmt: skip
)

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


def given_in(frame: FrameType, line: int) -> tuple[str, ...]:
    """The variables whose objects the loop at a line, or a function of its file, gives to others to change."""
    filename = frame.f_code.co_filename
    return tuple({*_given_in(filename, line), *given_by_functions(filename)})


def set_later(frame: FrameType, line: int, at: int) -> frozenset[str]:
    """The variables that the loop at a line binds only behind another of its lines."""
    return _set_later(frame.f_code.co_filename, line, at)


def bound_in_function(frame: FrameType) -> frozenset[str]:
    """The variables that a running function binds itself; its parameters came from outside."""
    return _bound_in_function(frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_code.co_name)


def falls_through(frame: FrameType, line: int) -> bool:
    """Was the loop at a line left by a break, to what follows it: not by a return or an error, or past its else?"""
    tree = tree_of(frame.f_code.co_filename)
    found = _find(tree, line) if tree is not None else None
    if found is None or getattr(found[1], "orelse", None):
        return False
    return any(isinstance(node, ast.Break) and node.lineno == frame.f_lineno for node in ast.walk(found[1]))


@lru_cache(maxsize=256)
def _given_in(filename: str, line: int) -> frozenset[str]:
    tree = tree_of(filename)
    found = _find(tree, line) if tree is not None else None
    return frozenset(given_away(found[1])) if found is not None else frozenset()


@lru_cache(maxsize=256)
def _set_later(filename: str, line: int, at: int) -> frozenset[str]:
    tree = tree_of(filename)
    found = _find(tree, line) if tree is not None else None
    if found is None:
        return frozenset()
    before = {name for name, place in _bindings(found[1]) if place <= at}
    return frozenset(name for name, _ in _bindings(found[1]) if name not in before)


@lru_cache(maxsize=256)
def _bound_in_function(filename: str, line: int, name: str) -> frozenset[str]:
    tree = tree_of(filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == line:
                return frozenset(bound for bound, _ in _bindings(node))
    return frozenset()


@lru_cache(maxsize=256)
def _used_in(filename: str, line: int) -> frozenset[str]:
    tree = tree_of(filename)
    found = _find(tree, line) if tree is not None else None
    if found is None:
        return frozenset()
    body = [name for statement in found[1].body for name in names(statement, ast.Load)]
    return frozenset(body) - frozenset(_stored(found[1]))


@lru_cache(maxsize=256)
def _rebound_in(filename: str, line: int) -> frozenset[str]:
    tree = tree_of(filename)
    found = _find(tree, line) if tree is not None else None
    return frozenset(name for name, _ in _bindings(found[1])) if found is not None else frozenset()


@lru_cache(maxsize=256)
def _live_outs(filename: str, line: int) -> tuple[str, ...]:
    tree = tree_of(filename)
    return of_loop(tree, line) if tree is not None else ()


@lru_cache(maxsize=256)
def _set_in(filename: str, line: int) -> tuple[str, ...]:
    tree = tree_of(filename)
    found = _find(tree, line) if tree is not None else None
    return tuple(dict.fromkeys([*_stored(found[1]), *changed_in_place(found[1])])) if found is not None else ()


def of_loop(tree: ast.Module, line: int) -> tuple[str, ...]:
    """The live-outs of the loop whose header is at a line."""
    found = _find(tree, line)
    if found is None:
        return ()
    scope, loop = found
    stored, kept = _stored(loop), _carried(loop)
    outside = set(_reads_outside(scope, loop))
    left = [name for name in [*stored, *changed_in_place(loop)] if name in outside or name in kept]
    return tuple(dict.fromkeys([*left, *changed_by_functions(tree, loop)]))


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


def _stored(loop: Loop) -> list[str]:
    caught = [node.name for node in ast.walk(loop) if isinstance(node, ast.ExceptHandler) and node.name]
    matched = [node.name for node in ast.walk(loop) if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name]
    return [*names(loop, ast.Store), *caught, *matched]


def _bindings(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that are bound, with their lines. `x += y` is none: it changes a list or an array in place."""
    changed = {id(inner.target) for inner in ast.walk(node) if isinstance(inner, ast.AugAssign)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store | ast.Del) and id(inner) not in changed:
            yield inner.id, inner.lineno
        elif isinstance(inner, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and inner.name:
            yield inner.name, inner.lineno


def _carried(loop: Loop) -> frozenset[str]:
    """Names that an iteration may read from the iteration before it."""
    if isinstance(loop, ast.For | ast.AsyncFor):
        return carried(loop.body, names(loop.target, ast.Store))
    # A `while` asks its test before each iteration; an `if` has one iteration, and those of the loop around it.
    return carried([ast.copy_location(ast.Expr(loop.test), loop), *loop.body])


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
        yield from names(statement, ast.Load)
