"""Rewrites a syntax tree so that its chosen loops and printed texts call a hook; line numbers stay the same."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeVar

from relive.instrument.call_facts import last_name
from relive.instrument.log_calls import TEXT_CALLS
from relive.instrument.loop_selection import LoopChoice, LoopKind, choose_loops
from relive.instrument.project_survey import ProjectSurvey
from relive.instrument.recorded_source import RecordedSource

RULES_VERSION = 1  # raised when the same source would get other loops, or other names for them
HOOK_NAME = "__relive__"  # the global that rewritten code calls; set in a module before it runs
N = TypeVar("N", bound=ast.expr)


def instrument_loops(
    tree: ast.Module, known: ProjectSurvey, recorded: RecordedSource | None = None
) -> list[LoopChoice]:
    """Rewrites a tree in place and returns the chosen loops: those of the recorded source, if statements were added.

    `for x in items` becomes `for x in __relive__.main("name", items)`, and `while test` becomes
    `while iterations.go(test)`, so that `else`, `continue` and `break` keep their meaning.
    """
    chosen = choose_loops(tree, known) if recorded is None else recorded.choose_loops(tree, known)
    _Rewriter(chosen, rewrite_prints=not _rebinds(tree, "print")).visit(tree)
    return chosen


def _rebinds(tree: ast.Module, name: str) -> bool:
    """Whether the file binds the name itself."""
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
    """Wraps chosen loops, prints and f-strings of text calls in calls of the hook."""

    def __init__(self, chosen: Sequence[LoopChoice], *, rewrite_prints: bool) -> None:
        self._chosen = {id(choice.node): choice for choice in chosen}
        self._rewrite_prints = rewrite_prints
        self._while_loops = 0

    def visit_For(self, node: ast.For) -> ast.AST:
        choice = self._chosen.get(id(node))
        self.generic_visit(node)
        if choice is not None:
            verb = "main" if choice.kind is LoopKind.TRAINING else "loop"
            node.iter = _call(_hook(verb, node.iter), [_constant(choice.name, node.iter), node.iter], node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        choice = self._chosen.get(id(node))
        self.generic_visit(node)
        if choice is None:
            return node
        self._while_loops += 1
        name = f"__relive_turns_{self._while_loops}__"  # as in the checkpoints of earlier releases
        verb = "main_iterations" if choice.kind is LoopKind.TRAINING else "iterations"
        test = node.test
        iterations = _call(_hook(verb, test), [_constant(choice.name, test)], test)
        before = ast.copy_location(ast.Assign([_at(ast.Name(name, ast.Store()), test)], iterations), test)
        node.test = _call(_attribute(name, "go", test), [test], test)
        after = ast.copy_location(ast.Expr(_call(_attribute(name, "leave", test), [], test)), test)
        return [before, ast.copy_location(ast.Try([node], [], [], [after]), node)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_print = isinstance(node.func, ast.Name) and node.func.id == "print"
        if is_print and not self._rewrite_prints:
            return node
        if is_print:
            node.func = _hook("print", node.func)
        elif not (isinstance(node.func, ast.Attribute) and last_name(node.func) in TEXT_CALLS):
            return node
        node.args = [
            _deferred_format(argument) if isinstance(argument, ast.JoinedStr) else argument for argument in node.args
        ]
        return node


def _deferred_format(text: ast.JoinedStr) -> ast.expr:
    """Replaces an f-string by a hook call that receives the values in full, not only as formatted."""
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
    return _attribute(HOOK_NAME, verb, like)


def _attribute(owner: str, name: str, like: ast.AST) -> ast.expr:
    return _at(ast.Attribute(_at(ast.Name(owner, ast.Load()), like), name, ast.Load()), like)


def _call(function: ast.expr, arguments: list[ast.expr], like: ast.AST) -> ast.expr:
    return _at(ast.Call(function, arguments, []), like)


def _constant(value: str | int, like: ast.AST) -> ast.expr:
    return _at(ast.Constant(value), like)


def _at(node: N, like: ast.AST) -> N:
    return ast.copy_location(node, like)
