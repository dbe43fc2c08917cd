"""Readable names for loops: the name of the target, or of what the loop counts."""

from __future__ import annotations

import ast
import re

from relive.instrument.call_facts import all_names, iterates_over_batches, last_name

_FALLBACK = "turn"  # part of recorded contexts: a new name would separate old runs from new ones
_READABLE_SHORT = frozenset({"ep", "it"})
_COUNT_AFFIX = re.compile(r"^(num|n|max|nb|total|number_of|no|tot|train|training)_+|_+(count|total|max)$", re.I)
_MEANINGLESS = frozenset(
    "idx index ind itertools start stop end len length self args cfg config opt opts hparams".split()
)
_WRAPPERS = frozenset(
    "enumerate tqdm trange zip range islice reversed sorted list iter track progress_bar count".split()
)


def loop_name(loop: ast.For | ast.While) -> str:
    """Returns a name for a loop; other loops of the file may get the same one."""
    return _for_name(loop) if isinstance(loop, ast.For) else _while_name(loop)


def _for_name(loop: ast.For) -> str:
    target: ast.expr = loop.target
    first = target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else target
    is_enumerated = isinstance(loop.iter, ast.Call) and _has_call(loop.iter, "enumerate")
    if isinstance(first, ast.Name) and _is_readable(first.id) and (first is target or is_enumerated):
        return _clean(first.id)
    if iterates_over_batches(loop.iter) or _has_stride(loop.iter):
        return "batch"
    if _has_call(loop.iter, "split"):
        return "fold"
    counted = [_singular(name) for name in all_names(loop.iter) if name not in _WRAPPERS and name not in _MEANINGLESS]
    readable = [name for name in counted if _is_readable(name)]
    if first is target and readable:
        return _clean(readable[-1])
    return _clean(first.id) if isinstance(first, ast.Name) else _FALLBACK


def _while_name(loop: ast.While) -> str:
    """Returns the name of what the condition compares, or of what the body increments."""
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
    return _FALLBACK


def _has_call(node: ast.AST, name: str) -> bool:
    return any(isinstance(inner, ast.Call) and last_name(inner.func) == name for inner in ast.walk(node))


def _has_stride(iterated: ast.expr) -> bool:
    """Whether the loop slices the data: `range(0, len(x), batch_size)`."""
    ranges = [n for n in ast.walk(iterated) if isinstance(n, ast.Call) and last_name(n.func) in ("range", "trange")]
    return any(len(one.args) == 3 for one in ranges)


def _is_readable(name: str) -> bool:
    bare = name.strip("_")
    return (len(bare) > 2 or bare in _READABLE_SHORT) and bare.lower() not in _MEANINGLESS


def _singular(name: str) -> str:
    """Returns the counted thing: `epoch` for `num_epochs`."""
    bare = _COUNT_AFFIX.sub("", name.strip("_"))
    return bare[:-1] if len(bare) > 3 and bare.endswith("s") and not bare.endswith("ss") else bare


def _clean(name: str) -> str:
    return name.strip("_") or _FALLBACK


def make_unique(names: list[str]) -> list[str]:
    """Numbers repeated names: `batch`, `batch_2`, `batch_3`, in source order."""
    seen: dict[str, int] = {}
    unique_names: list[str] = []
    taken = set(names)
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique = name if seen[name] == 1 else f"{name}_{seen[name]}"
        while seen[name] > 1 and unique in taken:
            seen[name] += 1
            unique = f"{name}_{seen[name]}"
        taken.add(unique)
        unique_names.append(unique)
    return unique_names
