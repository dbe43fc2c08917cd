"""Loop-carried variables: those that an iteration may read before it assigns them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_UNREACHABLE = object()  # in a set of assigned names: the statements that follow are never executed
Assigned = set[Any]


def loop_carried_names(body: Sequence[ast.stmt], targets: Iterable[str] = ()) -> frozenset[str]:
    """Returns the loop-carried names of a loop with this body, which assigns `targets` before each iteration."""
    reader = _LoopCarriedReader()
    reader.block(body, set(targets))
    return frozenset(reader.carried)


class _LoopCarriedReader:
    """Walks statements in order, with the names that are definitely assigned on every path to each of them."""

    def __init__(self) -> None:
        self.carried: set[str] = set()

    def block(self, statements: Sequence[ast.stmt], assigned: Assigned) -> Assigned:
        """Walks a block; returns the names that are definitely assigned after it."""
        assigned = set(assigned)
        for statement in statements:
            assigned = self._statement(statement, assigned)
        return assigned

    def _statement(self, node: ast.stmt, assigned: Assigned) -> Assigned:
        match node:
            case ast.If():
                assigned = self._expression(node.test, assigned)
                return _merge_branches(self.block(node.body, assigned), self.block(node.orelse, assigned))
            case ast.For() | ast.AsyncFor():
                assigned = self._expression(node.iter, assigned)
                self.block(node.body, assigned | _stored_names(node.target))
                self._read(node.target, assigned)
                self.block(node.orelse, assigned)
                return assigned
            case ast.While():
                assigned = self._expression(node.test, assigned)
                self.block(node.body, assigned)
                self.block(node.orelse, assigned)
                return assigned
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    assigned = self._expression(item, assigned)
                return self.block(node.body, assigned)
            case ast.Try() | ast.TryStar():
                return self._try(node, assigned)
            case ast.Match():
                assigned = self._expression(node.subject, assigned)
                for case in node.cases:
                    self.block(
                        case.body, self._expression(case, assigned | set(_captured_names(case.pattern)), body=False)
                    )
                return assigned
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self._expression(node, assigned) | {node.name}
            case ast.AugAssign():
                assigned = self._expression(node.value, assigned)
                self._read(node.target, assigned, stores=True)
                return assigned | _stored_names(node.target)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                assigned = self._expression(node.value, assigned) if node.value is not None else assigned
                for target in targets:
                    self._read(target, assigned)
                return assigned.union(*map(_stored_names, targets)) if node.value is not None else assigned
            case ast.Delete():
                self._read(node, assigned)
                return assigned - {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        assigned = self._expression(node, assigned)
        return assigned | {_UNREACHABLE} if isinstance(node, _JUMPS) else assigned

    def _try(self, node: ast.Try | ast.TryStar, assigned: Assigned) -> Assigned:
        """The body may raise before it assigns anything."""
        done = self.block(node.orelse, self.block(node.body, assigned))
        for handler in node.handlers:
            caught = assigned | ({handler.name} if handler.name else set())
            if handler.type is not None:
                self._read(handler.type, assigned)
            done = _merge_branches(done, self.block(handler.body, caught))
        final = self.block(node.finalbody, assigned)
        return done | final

    def _expression(self, node: ast.AST, assigned: Assigned, *, body: bool = True) -> Assigned:
        """Reads an expression, then adds the names that it assigns, as `:=` does."""
        if isinstance(node, ast.match_case) and not body:
            if node.guard is not None:
                self._read(node.guard, assigned)
            return assigned
        self._read(node, assigned)
        return assigned | (set() if isinstance(node, _SCOPES) else _stored_names(node))

    def _read(self, node: ast.AST, assigned: Assigned, *, stores: bool = False) -> None:
        if _UNREACHABLE not in assigned:
            self.carried |= {name for name in _loaded_names(node, stores=stores) if name not in assigned}


def _merge_branches(one: Assigned, other: Assigned) -> Assigned:
    """Returns the names assigned on both paths; a path that leaves the iteration does not count."""
    if _UNREACHABLE in one:
        return other
    return one if _UNREACHABLE in other else one & other


def _stored_names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}


def _loaded_names(node: ast.AST, *, stores: bool) -> Iterator[str]:
    """Yields the names that are read, except variables of comprehensions and parameters of functions."""
    if isinstance(node, ast.Name):
        if stores or not isinstance(node.ctx, ast.Store):
            yield node.id
        return
    scoped = _scoped_names(node)
    for child in ast.iter_child_nodes(node):
        yield from (name for name in _loaded_names(child, stores=stores) if name not in scoped)


def _scoped_names(node: ast.AST) -> set[str]:
    if isinstance(node, _COMPREHENSIONS):
        return set().union(*(_stored_names(part.target) for part in node.generators))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    return set()


def _captured_names(pattern: ast.pattern) -> Iterator[str]:
    for node in ast.walk(pattern):
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
