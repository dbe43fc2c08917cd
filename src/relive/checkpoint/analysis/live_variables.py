"""Live-out variables of a loop: bound or mutated in its body, and read after it or by its next iteration."""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType

from relive.checkpoint.analysis.loop_carried import loop_carried_names
from relive.checkpoint.analysis.project_mutations import (
    globals_mutated_by_functions,
    mutated_in_place,
    names_in_context,
    parse_file,
)

Loop = ast.For | ast.AsyncFor | ast.While | ast.If  # an `if block.step_into():` can be skipped like a loop
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.If)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def live_outs(frame: FrameType, line: int) -> tuple[str, ...]:
    """Returns the live-out variables of the loop at a line of a running function; empty if there is no source."""
    return _live_outs(frame.f_code.co_filename, line)


def rebound_in_loop(frame: FrameType, line: int) -> frozenset[str]:
    """Returns the variables that the loop at a line binds to other objects, rather than mutating their objects."""
    return _rebound_in_loop(frame.f_code.co_filename, line)


def read_in_loop(frame: FrameType, line: int) -> frozenset[str]:
    """Returns the variables that the loop at a line reads and does not bind itself."""
    return _read_in_loop(frame.f_code.co_filename, line)


def is_left_by_break(frame: FrameType, line: int) -> bool:
    """Whether the frame stands at a `break` of the loop at a line, so that the statement after the loop comes next.

    False if the loop has an `else`, which a `break` skips.
    """
    found = _find_loop_in_file(frame.f_code.co_filename, line)
    if found is None or getattr(found[1], "orelse", None):
        return False
    return any(isinstance(node, ast.Break) and node.lineno == frame.f_lineno for node in ast.walk(found[1]))


@lru_cache(maxsize=256)
def _read_in_loop(filename: str, line: int) -> frozenset[str]:
    found = _find_loop_in_file(filename, line)
    if found is None:
        return frozenset()
    body = [name for statement in found[1].body for name in names_in_context(statement, ast.Load)]
    return frozenset(body) - frozenset(_stored_names(found[1]))


@lru_cache(maxsize=256)
def _rebound_in_loop(filename: str, line: int) -> frozenset[str]:
    found = _find_loop_in_file(filename, line)
    return frozenset(_bound_names(found[1])) if found is not None else frozenset()


@lru_cache(maxsize=256)
def _live_outs(filename: str, line: int) -> tuple[str, ...]:
    tree = parse_file(filename)
    return live_outs_of_loop(tree, line, is_cell=_is_cell(filename)) if tree is not None else ()


def _is_cell(filename: str) -> bool:
    """Whether a text is a cell of a notebook: IPython keeps it among the lines of files, without a file."""
    entry = linecache.cache.get(filename)
    return entry is not None and len(entry) > 1 and entry[1] is None and not os.path.exists(filename)


def live_outs_of_loop(tree: ast.Module, line: int, *, is_cell: bool = False) -> tuple[str, ...]:
    """Returns the live-out variables of the loop whose header is at a line.

    `is_cell`: cells that are executed later may read every variable of the top level.
    """
    found = _find_loop(tree, line)
    if found is None:
        return ()
    scope, loop = found
    stored, carried = _stored_names(loop), _loop_carried(loop)
    outside = set(_reads_outside(scope, loop))
    changed = [*stored, *mutated_in_place(loop)]
    if is_cell and isinstance(scope, ast.Module):
        outside |= {*changed}
    live = [name for name in changed if name in outside or name in carried]
    return tuple(dict.fromkeys([*live, *globals_mutated_by_functions(tree, loop)]))


def _find_loop_in_file(filename: str, line: int) -> tuple[Scope, Loop] | None:
    tree = parse_file(filename)
    return _find_loop(tree, line) if tree is not None else None


def _find_loop(tree: ast.Module, line: int) -> tuple[Scope, Loop] | None:
    """Returns the innermost loop whose header covers the line, and the function or module that contains it."""
    best: tuple[Scope, Loop] | None = None
    todo: list[tuple[ast.AST, Scope]] = [(tree, tree)]
    while todo:
        node, scope = todo.pop()
        if isinstance(node, _LOOPS) and _has_header_at(node, line) and (best is None or node.lineno >= best[1].lineno):
            best = scope, node
        inner = node if isinstance(node, _FUNCTIONS) else scope
        todo.extend((child, inner) for child in ast.iter_child_nodes(node))
    return best


def _has_header_at(loop: Loop, line: int) -> bool:
    first = loop.body[0].lineno
    return loop.lineno <= line < first or line == loop.lineno == first


def _stored_names(loop: Loop) -> list[str]:
    caught = [node.name for node in ast.walk(loop) if isinstance(node, ast.ExceptHandler) and node.name]
    matched = [node.name for node in ast.walk(loop) if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name]
    return [*names_in_context(loop, ast.Store), *caught, *matched]


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yields the bound names. `x += y` doesn't count: it mutates a list or an array in place."""
    changed = {id(inner.target) for inner in ast.walk(node) if isinstance(inner, ast.AugAssign)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store | ast.Del) and id(inner) not in changed:
            yield inner.id
        elif isinstance(inner, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and inner.name:
            yield inner.name


def _loop_carried(loop: Loop) -> frozenset[str]:
    """Returns the names that an iteration may read from the iteration before it."""
    if isinstance(loop, ast.For | ast.AsyncFor):
        return loop_carried_names(loop.body, names_in_context(loop.target, ast.Store))
    # A `while` evaluates its test before each iteration; an `if` has one iteration for each of the loop around it.
    return loop_carried_names([ast.copy_location(ast.Expr(loop.test), loop), *loop.body])


def _reads_outside(scope: Scope, loop: Loop) -> Iterator[str]:
    """Yields the names that are read in the scope but not in the body of the loop."""
    todo: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        if node is loop:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        todo.extend(ast.iter_child_nodes(node))
    for statement in loop.orelse:
        yield from names_in_context(statement, ast.Load)
