"""What a single piece of source says: how a loop is left, how a function is called, what is gone through at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

ANY = "*"  # a loop whose name isn't a plain text
# Decorators after which a function is still called only where its name is.
_HARMLESS = frozenset(
    "no_grad inference_mode enable_grad staticmethod classmethod property cached_property lru_cache cache wraps "
    "contextmanager memo compile script override abstractmethod njit jit dataclass autocast typechecked setter".split()
)
# Bases whose methods nobody calls behind the program's back, but for the implicit ones.
_QUIET_BASES = frozenset(
    "object ABC Protocol Enum IntEnum StrEnum NamedTuple TypedDict Generic Module Dataset IterableDataset Exception "
    "Sampler ValueError RuntimeError".split()
)
_IMPLICIT = frozenset({"forward"})
# What goes through all that it is given before it returns.
CONSUMING = frozenset("all any dict frozenset list max min set sorted sum tuple".split())
MANAGERS = frozenset({"contextmanager", "asynccontextmanager"})


def name_in(call: ast.Call) -> str:
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "name"), None)
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ANY


def simple_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_called_by_name(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, bases: frozenset[str]) -> bool:
    if any(simple_name(decorator) not in _HARMLESS for decorator in node.decorator_list):
        return False
    if not owner or node.name == "__init__":
        return True
    is_dunder = node.name.startswith("__") and node.name.endswith("__")
    return not is_dunder and node.name not in _IMPLICIT and bases <= _QUIET_BASES


def may_leave(loop: ast.AST) -> bool:
    """May the loop be left by another way than to what follows it: a return, or a break past its else?"""
    own = list(own_nodes(loop))
    returns = any(isinstance(node, ast.Return) for node in own)
    return returns or (bool(getattr(loop, "orelse", None)) and any(isinstance(node, ast.Break) for node in own))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What is inside, but not in functions defined there."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from own_nodes(child)


def has_yield(body: Sequence[ast.AST]) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for part in body for node in [part, *own_nodes(part)])


def at_once(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression that are gone through before it has a value: `list(…)`, `sorted(…)`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in CONSUMING:
            yield from inner.args
        elif isinstance(inner, ast.ListComp | ast.SetComp | ast.DictComp):
            yield from (part.iter for part in inner.generators)
