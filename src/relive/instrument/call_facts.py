"""What a call does, judged by its name: trains, creates an optimizer, or iterates over batches of data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TRAINING_METHODS = frozenset(
    "backward partial_fit train_on_batch train_step training_step apply_gradients apply_updates minimize fit".split()
)
_NOT_A_LEARNER = re.compile(r"(^|_)(envs?|environment|simulator|game|world|scheduler|sched|profiler|prof|clock)$", re.I)
_LEARNER = re.compile(r"(^|_)(opt|optim|optimizer|tx|agent|policy|learner|trainer|solver|critic|actor|ema)\d*$", re.I)
_GRADIENT = re.compile(r"(^|_)(d?grads?|gradients?|lr|learning_rate|step_size|eta)(_|\d|$)|^d[wbW]\d*$|^g$", re.I)
_LOADER = re.compile(r"(loader|dataloader|batches|minibatches|train_iter|valid_iter|test_iter|(^|_)dl)s?$", re.I)
_TRAINING_COUNTER = re.compile(r"(^|_)(epochs?|episodes?|generations?|iterations?|iters|steps|rounds|updates)$", re.I)
_RUNNER = re.compile(r"(self|trainer|agent|learner|runner|experiment|engine|solver|worker|exp|algo)\d*$", re.I)
_OPTIMIZERS = frozenset(
    "Adam AdamW SGD RMSprop Adagrad Adadelta Adamax NAdam RAdam LBFGS ASGD Rprop SparseAdam Adafactor Lion Muon "
    "GradScaler".split()
)
_MODE_METHODS = frozenset({"train", "eval"})  # on a torch module, these switch its mode


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What some code does. `calls` holds the functions (`f:name`) and methods (`m:name`) that it calls."""

    trains: bool
    creates_optimizer: bool
    calls: frozenset[str]


def collect_facts(nodes: Iterable[ast.AST], modules: frozenset[str]) -> CallFacts:
    """Collects the facts of some code; `modules` holds the names that refer to modules there."""
    parts = [inner for node in nodes for inner in ast.walk(node)]
    calls = [node for node in parts if isinstance(node, ast.Call)]
    trains = any(map(_is_training_call, calls)) or any(map(_is_gradient_step, parts))
    return CallFacts(
        trains,
        any(map(creates_optimizer, calls)),
        frozenset(key for call in calls for key in _callee_keys(call, modules)),
    )


def _is_training_call(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id in ("train_step", "training_step")
    name, owner = call.func.attr, last_name(call.func.value)
    if name == "step":
        return not _NOT_A_LEARNER.search(owner)
    if name == "update":
        return bool(_LEARNER.search(owner))
    return name in _TRAINING_METHODS


def trained_variable(call: ast.Call) -> str | None:
    """The variable whose method trains, if the call trains: `optimizer` in `optimizer.step()`."""
    is_method = (
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and _is_training_call(call)
    )
    return call.func.value.id if is_method else None  # type: ignore[attr-defined]


def _is_gradient_step(node: ast.AST) -> bool:
    """Whether a statement is a hand-written update: `w -= lr * grad`, or `w = w - lr * grad`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub | ast.Add):
        update = node.value
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Sub):
        update = node.value
        if ast.unparse(node.targets[0]) != ast.unparse(node.value.left):
            return False
    else:
        return False
    return any(_GRADIENT.search(name) for name in all_names(update))


def creates_optimizer(call: ast.Call) -> bool:
    """Whether a call is `torch.optim.Adam(…)`, or instantiates any class with `model.parameters()`."""
    name = last_name(call.func)
    if name in _OPTIMIZERS:
        return True
    parts = [inner for argument in call.args for inner in ast.walk(argument)]
    takes_parameters = any(isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters") for n in parts)
    return takes_parameters and name[:1].isupper()


def _callee_keys(call: ast.Call, modules: frozenset[str]) -> Iterator[str]:
    function = call.func
    if isinstance(function, ast.Name):
        yield f"f:{function.id}"
    elif isinstance(function, ast.Attribute):
        owner = last_name(function.value)
        if isinstance(function.value, ast.Name) and owner in modules:
            yield f"f:{function.attr}"
        elif function.attr not in _MODE_METHODS or call.args or call.keywords or _RUNNER.search(owner):
            yield f"m:{function.attr}"


def iterates_over_batches(iterated: ast.expr) -> bool:
    """Whether an iterated expression names a data loader, also inside `enumerate`, `tqdm`, `zip` or `islice`."""
    return any(_LOADER.search(name) for name in all_names(iterated))


def has_training_counter(loop: ast.For | ast.While) -> bool:
    """Whether a loop's counter has a name usual in training: `for epoch in …`, `while step < max_steps`."""
    head: list[ast.AST] = [loop.target, loop.iter] if isinstance(loop, ast.For) else [loop.test]
    names = {name for part in head for name in all_names(part)}
    if isinstance(loop, ast.For) and not _is_counting_iterator(loop.iter):
        names = set(all_names(loop.target))
    return any(_TRAINING_COUNTER.search(name) for name in names)


def _is_counting_iterator(iterated: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Call) and last_name(n.func) in ("range", "trange", "count") for n in ast.walk(iterated)
    )


def last_name(node: ast.AST) -> str:
    """The last name of an expression: `optimizer` of `self.optimizer`, `opt` of `opts[0].opt`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript | ast.Call):
        return last_name(node.value if isinstance(node, ast.Subscript) else node.func)
    return node.id if isinstance(node, ast.Name) else ""


def all_names(node: ast.AST) -> Iterator[str]:
    """Yields the name of every variable and attribute in an expression."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
