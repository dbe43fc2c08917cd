"""Readable names for loops: the target's own, or what it is a count of."""

from __future__ import annotations

import ast
import re

from relive.instrument.call_facts import all_names, goes_over_batches, last_name

_SHORT = frozenset({"ep", "it"})
_COUNT_OF = re.compile(r"^(num|n|max|nb|total|number_of|no|tot|train|training)_+|_+(count|total|max)$", re.I)
_EMPTY = frozenset("idx index ind itertools start stop end len length self args cfg config opt opts hparams".split())
_WRAPPERS = frozenset(
    "enumerate tqdm trange zip range islice reversed sorted list iter track progress_bar count".split()
)


def name_of(loop: ast.For | ast.While) -> str:
    """A name for a loop, not yet unique."""
    return _of_for(loop) if isinstance(loop, ast.For) else _of_while(loop)


def _of_for(loop: ast.For) -> str:
    target: ast.expr = loop.target
    first = target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else target
    is_counted = isinstance(loop.iter, ast.Call) and _is_in(loop.iter, "enumerate")
    if isinstance(first, ast.Name) and _is_readable(first.id) and (first is target or is_counted):
        return _clean(first.id)
    if goes_over_batches(loop.iter) or _goes_in_strides(loop.iter):
        return "batch"
    if _is_in(loop.iter, "split"):
        return "fold"
    counted = [_singular(name) for name in all_names(loop.iter) if name not in _WRAPPERS and name not in _EMPTY]
    readable = [name for name in counted if _is_readable(name)]
    if first is target and readable:
        return _clean(readable[-1])
    return _clean(first.id) if isinstance(first, ast.Name) else "turn"


def _of_while(loop: ast.While) -> str:
    """What the condition compares, or what the body counts."""
    tests = [node for node in ast.walk(loop.test) if isinstance(node, ast.Compare)]
    for test in tests:
        name = _singular(last_name(test.left))
        if _is_readable(name):
            return _clean(name)
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant) and node.value.value == 1:
            name = _singular(last_name(node.target))
            if _is_readable(name):
                return _clean(name)
    return "turn"


def _is_in(node: ast.AST, name: str) -> bool:
    return any(isinstance(inner, ast.Call) and last_name(inner.func) == name for inner in ast.walk(node))


def _goes_in_strides(iterated: ast.expr) -> bool:
    """`range(0, len(x), batch_size)`: each iteration has a piece of the data."""
    ranges = [n for n in ast.walk(iterated) if isinstance(n, ast.Call) and last_name(n.func) in ("range", "trange")]
    return any(len(one.args) == 3 for one in ranges)


def _is_readable(name: str) -> bool:
    bare = name.strip("_")
    return (len(bare) > 2 or bare in _SHORT) and bare.lower() not in _EMPTY


def _singular(name: str) -> str:
    """`epoch` of `num_epochs`."""
    bare = _COUNT_OF.sub("", name.strip("_"))
    return bare[:-1] if len(bare) > 3 and bare.endswith("s") and not bare.endswith("ss") else bare


def _clean(name: str) -> str:
    return name.strip("_") or "turn"


def made_unique(names: list[str]) -> list[str]:
    """`batch`, `batch_2`, `batch_3`, in the order of the source."""
    seen: dict[str, int] = {}
    given: list[str] = []
    taken = set(names)
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique = name if seen[name] == 1 else f"{name}_{seen[name]}"
        while seen[name] > 1 and unique in taken:
            seen[name] += 1
            unique = f"{name}_{seen[name]}"
        taken.add(unique)
        given.append(unique)
    return given
