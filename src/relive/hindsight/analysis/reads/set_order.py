"""Which expressions depend on the order of a set: it differs between processes unless the hash seed is fixed."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

SET_ORDER = "set order"  # stands for a call in what an expression reads
_MAKERS = frozenset({"set", "frozenset"})
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_ORDERLESS = frozenset({"sorted", "len", "min", "max", "any", "all", "bool", "isinstance", *_MAKERS})
_ORDERLESS_METHODS = _SET_METHODS | {"issubset", "issuperset", "isdisjoint", "__contains__", "__len__"}


def names_of_sets(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Returns the variables and attributes that a file assigns sets to, or annotates as sets."""
    found: set[str] = set()
    assigned = [pair for node in nodes for pair in _assignments(node)]
    while True:
        more = {name for target, value in assigned if _is_set(value, found) for name in _last_name(target)} - found
        if not more:
            return frozenset(found)
        found |= more


def depends_on_set_order(node: ast.AST, sets: Collection[str]) -> bool:
    """Whether an expression uses a set otherwise than for what it holds: iterates over it, pops, or prints it."""
    if isinstance(node, ast.expr) and _is_set(node, sets):
        return True
    return any(depends_on_set_order(part, sets) for part in _parts_in_order(node, sets))


def _parts_in_order(node: ast.AST, sets: Collection[str]) -> Iterable[ast.AST]:
    """The parts of an expression, without sets in places where their order has no effect."""
    match node:
        case ast.Call(ast.Name(name), args) if name in _ORDERLESS:
            given = [*args, *(keyword.value for keyword in node.keywords)]
            return [part for one in given for part in _inside(one, sets)]
        case ast.Call(ast.Attribute(owner, name), args) if name in _ORDERLESS_METHODS and _is_set(owner, sets):
            return [part for one in [owner, *args] for part in _inside(one, sets)]
        case ast.Compare(left, _, others):
            return [part for one in [left, *others] for part in _inside(one, sets)]
        case _:
            return ast.iter_child_nodes(node)


def _inside(node: ast.expr, sets: Collection[str]) -> Iterable[ast.AST]:
    """The expression itself; if it is a set, or goes over one, what that is made of."""
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
        return [node.elt, *(part for one in node.generators for part in [*_inside(one.iter, sets), *one.ifs])]
    if not _is_set(node, sets):
        return [node]
    if isinstance(node, ast.Name | ast.Attribute):
        return []
    if isinstance(node, ast.BinOp):
        return [*_inside(node.left, sets), *_inside(node.right, sets)]
    return _parts_in_order(node, sets)


def _holds_numbers(node: ast.AST) -> bool:
    """Whether a set is made of numbers only, whose hashes are the same in every process: `{1, 2}`, `set(range(9))`."""
    match node:
        case ast.Set(items):
            return all(isinstance(one, ast.Constant) and isinstance(one.value, int | float) for one in items)
        case ast.Call(ast.Name("set" | "frozenset"), [ast.Call(ast.Name("range"))]):
            return True
        case _:
            return False


def _is_set(node: ast.AST, sets: Collection[str]) -> bool:
    if _holds_numbers(node):
        return False
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(ast.Name(name)):
            return name in _MAKERS
        case ast.Call(ast.Attribute(owner, name)):
            return name in _SET_METHODS and _is_set(owner, sets)
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right):
            return _is_set(left, sets) or _is_set(right, sets)
        case ast.Name(name) | ast.Attribute(_, name):
            return name in sets
        case ast.Subscript(ast.Name("set" | "frozenset" | "Set" | "FrozenSet")):
            return True  # an annotation
        case _:
            return False


def _assignments(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    match node:
        case ast.Assign(targets, value):
            return [(target, value) for target in targets]
        case ast.AnnAssign(target, annotation, value):
            return [(target, value or annotation), (target, annotation)]
        case ast.AugAssign(target, _, value) | ast.NamedExpr(target, value):
            return [(target, value)]
        case ast.arg(annotation=ast.expr() as annotation):
            return [(node, annotation)]
        case _:
            return []


def _last_name(target: ast.AST) -> list[str]:
    match target:
        case ast.Name(name) | ast.Attribute(_, name) | ast.arg(name):
            return [name]
        case _:
            return []
