"""Gradients that outlive the iteration in which they were made: only then are they part of the state."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from relive.checkpoint.analysis import project_files, tree_of

_CLEARS = frozenset({"zero_grad", "clear_grad", "clear_gradients"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_OPTIMIZING = "step"  # an optimizer of the project reads gradients where it is called


def gradients_outlive() -> bool:
    """May code of the project use gradients that another iteration, or an inner loop, has made?

    It is so if there is a `backward` without a `zero_grad` beside it in the same loop, whatever the
    iteration does; or if gradients are read where none are made.
    """
    return _outlive(project_files())


@lru_cache(maxsize=16)
def _outlive(files: tuple[str, ...]) -> bool:
    trees = [tree for file in files if (tree := tree_of(file)) is not None]
    return any(_outlive_in(list(_said(tree, _GradientUse()))) for tree in trees)


@dataclass(frozen=True, slots=True)
class _GradientUse:
    """Where something stands: in which function, in which of its loops, and under which of the conditions there."""

    function: int = 0
    loops: tuple[int, ...] = ()
    conditions: tuple[tuple[int, str], ...] = ()
    is_step: bool = False

    def is_beside(self, made: _GradientUse) -> bool:
        """In the same iteration of the loop in which gradients are made, perhaps in a loop of its own."""
        return self.function == made.function and self.loops[: len(made.loops)] == made.loops

    def always_with(self, made: _GradientUse) -> bool:
        inside = self.loops == made.loops
        return self.is_beside(made) and (not inside or made.conditions[: len(self.conditions)] == self.conditions)


def _outlive_in(said: list[tuple[str, _GradientUse]]) -> bool:
    made, cleared, read = ([place for what, place in said if what == kind] for kind in ("made", "cleared", "read"))
    if any(not any(clear.always_with(place) for clear in cleared) for place in made):
        return True
    return any(not place.is_step and not any(place.is_beside(one) for one in made) for place in read)


def _said(node: ast.AST, place: _GradientUse) -> Iterator[tuple[str, _GradientUse]]:
    """What a piece of code does with gradients, and where."""
    for field, value in ast.iter_fields(node):
        inner = _inside(node, field, place)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from ((what, inner) for what in _does(child))
                yield from _said(child, inner)


def _inside(node: ast.AST, field: str, place: _GradientUse) -> _GradientUse:
    if field not in ("body", "orelse"):
        return place
    if isinstance(node, _FUNCTIONS):
        return _GradientUse(id(node), is_step=getattr(node, "name", "") == _OPTIMIZING)
    if isinstance(node, _LOOPS) and field == "body":
        return _GradientUse(place.function, (*place.loops, id(node)), (), place.is_step)
    if isinstance(node, ast.If | ast.IfExp):
        return _GradientUse(place.function, place.loops, (*place.conditions, (id(node), field)), place.is_step)
    return place


def _does(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(attr="backward")):
            yield "made"
        case ast.Call(func=ast.Attribute(attr=name)) if name in _CLEARS:
            yield "cleared"
        case ast.Attribute(attr="grad", ctx=ast.Store()):
            yield "cleared"
        case ast.Attribute(attr="grad", ctx=ast.Load()):
            yield "read"
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.startswith("clip_grad"):
            yield "read"


# --- keeping them -----------------------------------------------------------------------------------------------------

Gradients = dict[str, dict[str, Any]]  # of each object, by the names of its parameters


def gradients_of(things: Mapping[str, Any]) -> Gradients:
    """The gradients of all modules, and of what optimizers train besides, each once."""
    found: Gradients = {}
    seen: set[int] = set()
    for name, thing in _modules_first(things):
        fresh = {key: one for key, one in _parameters(thing) if id(one) not in seen}
        seen.update(map(id, fresh.values()))
        if fresh:
            found[name] = {key: one.grad for key, one in fresh.items() if one.grad is not None}
    return found


def put_gradients_back(kept: Gradients, things: Mapping[str, Any]) -> None:
    """Give parameters the gradients they had; those that had none have none."""
    for name, thing in _modules_first(things):
        if name in kept:
            for key, parameter in _parameters(thing):
                parameter.grad = kept[name].get(key)


def _modules_first(things: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    modules = [(name, one) for name, one in things.items() if isinstance(one, torch.nn.Module)]
    return modules + [(name, one) for name, one in things.items() if isinstance(one, torch.optim.Optimizer)]


def _parameters(thing: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(thing, "named_parameters"):
        yield from thing.named_parameters()
    else:
        trained = (parameter for group in thing.param_groups for parameter in group["params"])
        yield from ((str(number), one) for number, one in enumerate(trained))
