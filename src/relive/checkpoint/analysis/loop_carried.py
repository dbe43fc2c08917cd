"""Loop-carried variables: those that an iteration may read before it has set them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_EVERY = object()  # in place of names: what comes after is never reached
Names = set[Any]


def carried(body: Sequence[ast.stmt], targets: Iterable[str] = ()) -> frozenset[str]:
    """Of a loop with this body, which sets its `targets` before each iteration."""
    reader = _CarriedReader()
    reader.block(body, set(targets))
    return frozenset(reader.exposed)


class _CarriedReader:
    """Goes through statements in their order, with what is set on every way to each of them."""

    def __init__(self) -> None:
        self.exposed: set[str] = set()

    def block(self, statements: Sequence[ast.stmt], known: Names) -> Names:
        """Read a block; gives what is surely set behind it."""
        known = set(known)
        for statement in statements:
            known = self._statement(statement, known)
        return known

    def _statement(self, node: ast.stmt, known: Names) -> Names:
        match node:
            case ast.If():
                known = self._expression(node.test, known)
                return _both(self.block(node.body, known), self.block(node.orelse, known))
            case ast.For() | ast.AsyncFor():
                known = self._expression(node.iter, known)
                self.block(node.body, known | _stored(node.target))
                self._reads(node.target, known)
                self.block(node.orelse, known)
                return known
            case ast.While():
                known = self._expression(node.test, known)
                self.block(node.body, known)
                self.block(node.orelse, known)
                return known
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    known = self._expression(item, known)
                return self.block(node.body, known)
            case ast.Try() | ast.TryStar():
                return self._try(node, known)
            case ast.Match():
                known = self._expression(node.subject, known)
                for case in node.cases:
                    self.block(case.body, self._expression(case, known | set(_matched(case.pattern)), body=False))
                return known
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self._expression(node, known) | {node.name}
            case ast.AugAssign():
                known = self._expression(node.value, known)
                self._reads(node.target, known, stores=True)
                return known | _stored(node.target)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                known = self._expression(node.value, known) if node.value is not None else known
                for target in targets:
                    self._reads(target, known)
                return known.union(*map(_stored, targets)) if node.value is not None else known
            case ast.Delete():
                self._reads(node, known)
                return known - {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        known = self._expression(node, known)
        return known | {_EVERY} if isinstance(node, _LEAVES) else known

    def _try(self, node: ast.Try | ast.TryStar, known: Names) -> Names:
        """It may fail before anything in it is set."""
        done = self.block(node.orelse, self.block(node.body, known))
        for handler in node.handlers:
            own = known | ({handler.name} if handler.name else set())
            if handler.type is not None:
                self._reads(handler.type, known)
            done = _both(done, self.block(handler.body, own))
        final = self.block(node.finalbody, known)
        return done | final

    def _expression(self, node: ast.AST, known: Names, *, body: bool = True) -> Names:
        """Its reads come first; then `:=` and the like have set what they set."""
        if isinstance(node, ast.match_case) and not body:
            if node.guard is not None:
                self._reads(node.guard, known)
            return known
        self._reads(node, known)
        return known | (set() if isinstance(node, _SCOPES) else _stored(node))

    def _reads(self, node: ast.AST, known: Names, *, stores: bool = False) -> None:
        if _EVERY not in known:
            self.exposed |= {name for name in _loaded(node, stores=stores) if name not in known}


def _both(one: Names, other: Names) -> Names:
    """What is set whichever way was taken; a way that leaves the iteration does not count."""
    if _EVERY in one:
        return other
    return one if _EVERY in other else one & other


def _stored(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}


def _loaded(node: ast.AST, *, stores: bool) -> Iterator[str]:
    """Names that are read, but for those which belong to a comprehension or are parameters of a function."""
    if isinstance(node, ast.Name):
        if stores or not isinstance(node.ctx, ast.Store):
            yield node.id
        return
    own = _own(node)
    for child in ast.iter_child_nodes(node):
        yield from (name for name in _loaded(child, stores=stores) if name not in own)


def _own(node: ast.AST) -> set[str]:
    if isinstance(node, _COMPREHENSIONS):
        return set().union(*(_stored(part.target) for part in node.generators))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    return set()


def _matched(pattern: ast.pattern) -> Iterator[str]:
    for node in ast.walk(pattern):
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
