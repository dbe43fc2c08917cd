"""Facts about single syntax nodes: how a loop is left, how a function is called, what is iterated eagerly."""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Iterator, Sequence

ANY_LOOP = "*"  # stands for the name of a loop whose name is not a literal
# Decorators that keep a function callable by its name only.
_HARMLESS = frozenset(
    "no_grad inference_mode enable_grad staticmethod classmethod property cached_property lru_cache cache wraps "
    "contextmanager memo compile script override abstractmethod njit jit dataclass autocast typechecked setter".split()
)
# Base classes whose methods are called by the program only, except for the implicit ones.
_QUIET_BASES = frozenset(
    "object ABC Protocol Enum IntEnum StrEnum NamedTuple TypedDict Generic Module Dataset IterableDataset Exception "
    "Sampler ValueError RuntimeError".split()
)
_IMPLICIT = frozenset({"forward"})
# Functions that iterate over their whole argument before they return.
CONSUMING = frozenset("all any dict frozenset list max min set sorted sum tuple".split())
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MANAGERS = frozenset({"contextmanager", "asynccontextmanager"})


def name_argument(call: ast.Call) -> str:
    """The `name` argument of a verb, if it is a literal."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "name"), None)
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ANY_LOOP


def simple_name(node: ast.expr) -> str:
    """The last name of an expression: `c` for `a.b.c(…)[0]`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_called_by_name(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, bases: frozenset[str]) -> bool:
    """Whether only calls in the program run a function, rather than a decorator, a framework or an operator."""
    if any(simple_name(decorator) not in _HARMLESS for decorator in node.decorator_list):
        return False
    if not owner or node.name == "__init__":
        return True
    is_dunder = node.name.startswith("__") and node.name.endswith("__")
    return not is_dunder and node.name not in _IMPLICIT and bases <= _QUIET_BASES


def has_other_exit(loop: ast.AST) -> bool:
    """Whether the loop may continue elsewhere than right after it: by a return, or a break past its else."""
    own = list(nodes_outside_functions(loop))
    returns = any(isinstance(node, ast.Return) for node in own)
    return returns or (bool(getattr(loop, "orelse", None)) and any(isinstance(node, ast.Break) for node in own))


def nodes_outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes inside, except in functions defined there."""
    todo = [node]
    while todo:
        for child in ast.iter_child_nodes(todo.pop()):
            if not isinstance(child, _FUNCTIONS):
                yield child
                todo.append(child)


def has_yield(body: Sequence[ast.AST]) -> bool:
    nodes = (node for part in body for node in [part, *nodes_outside_functions(part)])
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)


def eagerly_iterated(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression that are iterated before it has a value: in `list(…)`, `sorted(…)`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in CONSUMING:
            yield from inner.args
        elif isinstance(inner, ast.ListComp | ast.SetComp | ast.DictComp):
            yield from (part.iter for part in inner.generators)


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Stops the garbage collector: syntax trees have no cycles, and it would look at millions of nodes for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
