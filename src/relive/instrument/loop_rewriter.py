"""The same tree with its chosen loops and printed texts made visible; every line keeps its number."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar

from relive.instrument.call_facts import last_name
from relive.instrument.log_calls import TEXT_CALLS
from relive.instrument.loop_selection import Kind, LoopChoice, choose
from relive.instrument.project_survey import Survey

RULES = 1  # raised when the same source would get other loops, or other names for them
HOOK = "__relive__"  # what rewritten code calls; a module gets it before it runs
N = TypeVar("N", bound=ast.expr)


def instrument(tree: ast.Module, known: Survey) -> list[LoopChoice]:
    """Rewrite a tree in place; gives the loops that were chosen.

    `for x in items` becomes `for x in __relive__.main("name", items)`, and `while test` becomes
    `while iterations.go(test)`, so that `else`, `continue` and `break` mean what they meant.
    """
    chosen = choose(tree, known)
    _Rewriter(chosen, prints=not _binds(tree, "print")).visit(tree)
    return chosen


def _binds(tree: ast.Module, name: str) -> bool:
    """Does the file give the name a meaning of its own?"""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and node.name == name:
            return True
        if isinstance(node, ast.arg) and node.arg == name:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) == name:
            return True
    return False


class _Rewriter(ast.NodeTransformer):
    def __init__(self, chosen: Sequence[LoopChoice], *, prints: bool) -> None:
        self._chosen = {id(choice.node): choice for choice in chosen}
        self._prints = prints
        self._iterations = 0

    def visit_For(self, node: ast.For) -> ast.AST:
        choice = self._chosen.get(id(node))
        self.generic_visit(node)
        if choice is not None:
            verb = "main" if choice.kind is Kind.TRAINING else "loop"
            node.iter = _call(_hook(verb, node.iter), [_constant(choice.name, node.iter), node.iter], node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        choice = self._chosen.get(id(node))
        self.generic_visit(node)
        if choice is None:
            return node
        self._iterations += 1
        name = f"__relive_turns_{self._iterations}__"  # as in the checkpoints of earlier releases
        verb = "main_iterations" if choice.kind is Kind.TRAINING else "iterations"
        test = node.test
        made = _call(_hook(verb, test), [_constant(choice.name, test)], test)
        before = ast.copy_location(ast.Assign([_at(ast.Name(name, ast.Store()), test)], made), test)
        node.test = _call(_attribute(name, "go", test), [test], test)
        after = ast.copy_location(ast.Expr(_call(_attribute(name, "leave", test), [], test)), test)
        return [before, ast.copy_location(ast.Try([node], [], [], [after]), node)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_print = isinstance(node.func, ast.Name) and node.func.id == "print"
        if is_print and not self._prints:
            return node
        if is_print:
            node.func = _hook("print", node.func)
        elif not (isinstance(node.func, ast.Attribute) and last_name(node.func) in TEXT_CALLS):
            return node
        node.args = [_told(argument) if isinstance(argument, ast.JoinedStr) else argument for argument in node.args]
        return node


def _told(text: ast.JoinedStr) -> ast.expr:
    """An f-string as a text that still knows the values in it, not only their first digits."""
    parts: list[ast.expr] = []
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            spec = part.format_spec or _constant("", text)
            row = [part.value, _constant(part.conversion, text), spec]
            parts.append(ast.copy_location(ast.Tuple(row, ast.Load()), part.value))
        else:
            parts.append(part)
    return _call(_hook("text", text), parts, text)


def _hook(verb: str, like: ast.AST) -> ast.expr:
    return _attribute(HOOK, verb, like)


def _attribute(owner: str, name: str, like: ast.AST) -> ast.expr:
    return _at(ast.Attribute(_at(ast.Name(owner, ast.Load()), like), name, ast.Load()), like)


def _call(function: ast.expr, arguments: list[ast.expr], like: ast.AST) -> ast.expr:
    return _at(ast.Call(function, arguments, []), like)


def _constant(value: str | int, like: ast.AST) -> ast.expr:
    return _at(ast.Constant(value), like)


def _at(node: N, like: ast.AST) -> N:
    return ast.copy_location(node, like)
