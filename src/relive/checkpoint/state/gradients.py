"""Loop-carried gradients: those that a later iteration reads are part of the state, by static analysis."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from relive.checkpoint.analysis import parse_file, project_files

_CLEARS = frozenset({"zero_grad", "clear_grad", "clear_gradients"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_OPTIMIZER_STEP = "step"  # the method in which an optimizer of the project reads gradients


def has_loop_carried_gradients() -> bool:
    """Whether the project may use gradients that another iteration, or an inner loop, has computed.

    That is so if a `backward` has no unconditional `zero_grad` in the same loop, or if gradients are read where none
    are computed.
    """
    return _has_loop_carried_gradients(project_files())


@lru_cache(maxsize=16)
def _has_loop_carried_gradients(files: tuple[str, ...]) -> bool:
    trees = [tree for file in files if (tree := parse_file(file)) is not None]
    return any(_are_loop_carried(list(_gradient_uses(tree, _GradientPosition()))) for tree in trees)


@dataclass(frozen=True, slots=True)
class _GradientPosition:
    """A position in the code: its function, the loops around it, and the conditions in the innermost loop."""

    function: int = 0
    loops: tuple[int, ...] = ()
    conditions: tuple[tuple[int, str], ...] = ()
    is_step: bool = False

    def shares_iteration_with(self, other: _GradientPosition) -> bool:
        """Whether this is in the innermost loop around `other`, perhaps in a loop nested in it."""
        return self.function == other.function and self.loops[: len(other.loops)] == other.loops

    def is_executed_with(self, other: _GradientPosition) -> bool:
        """Whether this is executed in every iteration in which `other` is."""
        has_same_conditions = other.conditions[: len(self.conditions)] == self.conditions
        return self.shares_iteration_with(other) and (self.loops != other.loops or has_same_conditions)


def _are_loop_carried(uses: list[tuple[str, _GradientPosition]]) -> bool:
    computed, cleared, read = (
        [position for action, position in uses if action == kind] for kind in ("computed", "cleared", "read")
    )
    if any(not any(clear.is_executed_with(position) for clear in cleared) for position in computed):
        return True
    return any(
        not position.is_step and not any(position.shares_iteration_with(one) for one in computed) for position in read
    )


def _gradient_uses(node: ast.AST, position: _GradientPosition) -> Iterator[tuple[str, _GradientPosition]]:
    """Yields what a piece of code does with gradients, and where."""
    for field, value in ast.iter_fields(node):
        inner = _position_inside(node, field, position)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from ((action, inner) for action in _actions(child))
                yield from _gradient_uses(child, inner)


def _position_inside(node: ast.AST, field: str, position: _GradientPosition) -> _GradientPosition:
    if field not in ("body", "orelse"):
        return position
    if isinstance(node, _FUNCTIONS):
        return _GradientPosition(id(node), is_step=getattr(node, "name", "") == _OPTIMIZER_STEP)
    if isinstance(node, _LOOPS) and field == "body":
        return _GradientPosition(position.function, (*position.loops, id(node)), (), position.is_step)
    if isinstance(node, ast.If | ast.IfExp):
        return _GradientPosition(
            position.function, position.loops, (*position.conditions, (id(node), field)), position.is_step
        )
    return position


def _actions(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(attr="backward")):
            yield "computed"
        case ast.Call(func=ast.Attribute(attr=name)) if name in _CLEARS:
            yield "cleared"
        case ast.Attribute(attr="grad", ctx=ast.Store()):
            yield "cleared"
        case ast.Attribute(attr="grad", ctx=ast.Load()):
            yield "read"
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.startswith("clip_grad"):
            yield "read"
