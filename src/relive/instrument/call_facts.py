"""What a call is about, told by its name: it trains, it makes an optimizer, it goes over batches of data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TRAINS = frozenset(
    "backward partial_fit train_on_batch train_step training_step apply_gradients apply_updates minimize fit".split()
)
_NOT_TRAINED = re.compile(r"(^|_)(envs?|environment|simulator|game|world|scheduler|sched|profiler|prof|clock)$", re.I)
_LEARNS = re.compile(r"(^|_)(opt|optim|optimizer|tx|agent|policy|learner|trainer|solver|critic|actor|ema)\d*$", re.I)
_GRADIENT = re.compile(r"(^|_)(d?grads?|gradients?|lr|learning_rate|step_size|eta)(_|\d|$)|^d[wbW]\d*$|^g$", re.I)
_LOADER = re.compile(r"(loader|dataloader|batches|minibatches|train_iter|valid_iter|test_iter|(^|_)dl)s?$", re.I)
_COUNTED = re.compile(r"(^|_)(epochs?|episodes?|generations?|iterations?|iters|steps|rounds|updates)$", re.I)
_RUNNERS = re.compile(r"(self|trainer|agent|learner|runner|experiment|engine|solver|worker|exp|algo)\d*$", re.I)
_OPTIMIZERS = frozenset(
    "Adam AdamW SGD RMSprop Adagrad Adadelta Adamax NAdam RAdam LBFGS ASGD Rprop SparseAdam Adafactor Lion Muon "
    "GradScaler".split()
)
_MODES = frozenset({"train", "eval"})  # of a torch module they set a mode


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a piece of code does. `calls` are the functions (`f:name`) and methods (`m:name`) that it calls."""

    trains: bool
    makes: bool
    calls: frozenset[str]


def facts_of(nodes: Iterable[ast.AST], modules: frozenset[str]) -> CallFacts:
    """Look through some code; `modules` are the names by which it knows modules."""
    parts = [inner for node in nodes for inner in ast.walk(node)]
    calls = [node for node in parts if isinstance(node, ast.Call)]
    trains = any(map(_trains, calls)) or any(map(_descends, parts))
    return CallFacts(
        trains, any(map(makes_optimizer, calls)), frozenset(key for call in calls for key in _keys(call, modules))
    )


def _trains(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id in ("train_step", "training_step")
    name, owner = call.func.attr, last_name(call.func.value)
    if name == "step":
        return not _NOT_TRAINED.search(owner)
    if name == "update":
        return bool(_LEARNS.search(owner))
    return name in _TRAINS


def trained_by(call: ast.Call) -> str | None:
    """The variable whose method trains, if the call does: `optimizer` in `optimizer.step()`."""
    is_method = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and _trains(call)
    return call.func.value.id if is_method else None  # type: ignore[attr-defined]


def _descends(node: ast.AST) -> bool:
    """`w -= lr * grad`, or `w = w - lr * grad`: training by hand."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub | ast.Add):
        changed = node.value
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Sub):
        changed = node.value
        if ast.unparse(node.targets[0]) != ast.unparse(node.value.left):
            return False
    else:
        return False
    return any(_GRADIENT.search(name) for name in all_names(changed))


def makes_optimizer(call: ast.Call) -> bool:
    """`torch.optim.Adam(…)`, or any class that is given `model.parameters()`."""
    name = last_name(call.func)
    if name in _OPTIMIZERS:
        return True
    given = [inner for argument in call.args for inner in ast.walk(argument)]
    takes = any(isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters") for n in given)
    return takes and name[:1].isupper()


def _keys(call: ast.Call, modules: frozenset[str]) -> Iterator[str]:
    function = call.func
    if isinstance(function, ast.Name):
        yield f"f:{function.id}"
    elif isinstance(function, ast.Attribute):
        owner = last_name(function.value)
        if isinstance(function.value, ast.Name) and owner in modules:
            yield f"f:{function.attr}"
        elif function.attr not in _MODES or call.args or call.keywords or _RUNNERS.search(owner):
            yield f"m:{function.attr}"


def goes_over_batches(iterated: ast.expr) -> bool:
    """Does an iterated expression name a data loader, perhaps inside of `enumerate`, `tqdm`, `zip` or `islice`?"""
    return any(_LOADER.search(name) for name in all_names(iterated))


def counts_training(loop: ast.For | ast.While) -> bool:
    """`for epoch in …`, `for _ in range(num_steps)`, `while step < max_steps`: named as trainings are."""
    head: list[ast.AST] = [loop.target, loop.iter] if isinstance(loop, ast.For) else [loop.test]
    names = {name for part in head for name in all_names(part)}
    if isinstance(loop, ast.For) and not _is_counter(loop.iter):
        names = set(all_names(loop.target))
    return any(_COUNTED.search(name) for name in names)


def _is_counter(iterated: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Call) and last_name(n.func) in ("range", "trange", "count") for n in ast.walk(iterated)
    )


def last_name(node: ast.AST) -> str:
    """`optimizer` of `self.optimizer`, `Adam` of `torch.optim.Adam`, `opt` of `opts[0].opt`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript | ast.Call):
        return last_name(node.value if isinstance(node, ast.Subscript) else node.func)
    return node.id if isinstance(node, ast.Name) else ""


def all_names(node: ast.AST) -> Iterator[str]:
    """Every variable and attribute that an expression names."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
