"""What a loop changes, by the six static rules of the Flor paper (Table 2), and nothing more."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr)


def estimate(body: Sequence[ast.stmt]) -> frozenset[str] | None:
    """The names of what the body of a loop changes and that were there before it; None: no estimate."""
    changed: set[str] = set()
    defined: set[str] = set()  # in the body: taken as local to it
    for statement in _statements(body):
        found = _changes(statement, changed)
        if found is None:
            return None
        objects, targets = found
        changed |= objects | targets
        defined |= {name for name in targets if "." not in name and "[" not in name}
    return frozenset(_owner(name) for name in changed if name not in defined)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """One by one, in the order of the source; those of nested blocks too."""
    for statement in body:
        if isinstance(statement, _SIMPLE):
            yield statement
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _statements(getattr(statement, name, []))


def _changes(statement: ast.stmt, changed: set[str]) -> tuple[set[str], set[str]] | None:
    if isinstance(statement, ast.Expr):
        call = statement.value
        if not isinstance(call, ast.Call):
            return set(), set()
        return ({_text(call.func.value)}, set()) if isinstance(call.func, ast.Attribute) else None  # rules 4 and 5
    raw = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    targets = {_text(part) for target in raw for part in getattr(target, "elts", [target])}
    value = statement.value  # type: ignore[attr-defined]
    if isinstance(value, ast.Call):
        method = isinstance(value.func, ast.Attribute)
        return ({_text(value.func.value)} if method else set()), targets  # type: ignore[attr-defined]  # rules 1 and 2
    if targets & changed:
        return None  # rule 0
    return set(), targets  # rule 3


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _owner(name: str) -> str:
    return name.partition(".")[0].partition("[")[0].partition("(")[0]
