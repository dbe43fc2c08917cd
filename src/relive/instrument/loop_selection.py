"""Which loops of a file to instrument: training loops, loops around them, and loops over batches of data."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass

from relive.instrument.call_facts import (
    collect_facts,
    creates_optimizer,
    has_training_counter,
    iterates_over_batches,
    last_name,
    trained_variable,
)
from relive.instrument.loop_names import loop_name, make_unique
from relive.instrument.project_survey import ProjectSurvey, modules_in

Loop = ast.For | ast.While
_BOOKKEEPING_CALLS = frozenset(
    "append extend add print format join len range int float str item round sum write split".split()
)


class LoopKind(enum.Enum):
    """The purpose of a loop."""

    TRAINING = "training"  # the outermost one is the main loop
    TRIALS = "trials"  # each iteration starts a training of its own: folds, seeds, a search
    PASS = "pass"  # iterates over batches without training


@dataclass(frozen=True, slots=True, eq=False)
class LoopChoice:
    """A loop to instrument, its name, and the reason for the choice."""

    node: Loop
    name: str
    kind: LoopKind
    why: str

    @property
    def line(self) -> int:
        return self.node.lineno


def choose_loops(tree: ast.Module, known: ProjectSurvey) -> list[LoopChoice]:
    """Returns the loops of a file to instrument, in source order."""
    if _uses_relive_loops(tree):
        return []
    modules = modules_in(tree)
    classified = [
        (loop, *purpose) for loop in _candidate_loops(tree) if (purpose := _classify(loop, known, modules)) is not None
    ]
    # Training loops are named first: `batch` is the training loop, and `batch_2` the evaluation.
    classified.sort(key=lambda one: one[1] is LoopKind.PASS)
    names = make_unique([loop_name(loop) for loop, _, _ in classified])
    chosen = [LoopChoice(loop, name, kind, why) for name, (loop, kind, why) in zip(names, classified, strict=True)]
    return sorted(chosen, key=lambda choice: choice.line)


def _uses_relive_loops(tree: ast.Module) -> bool:
    """Whether the file marks loops itself; then its author has chosen them already."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr == "loop" and last_name(f.value) == "relive" for f in calls)


def _candidate_loops(node: ast.AST) -> Iterator[Loop]:
    """Yields the loops of the module and of its functions, but not of class bodies, coroutines and generators."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.ClassDef):
            for member in child.body:
                if isinstance(member, ast.FunctionDef):
                    yield from _candidate_loops(member)
            continue
        if isinstance(child, ast.For | ast.While) and not _contains_suspension(child):
            yield child
        yield from _candidate_loops(child)


def _contains_suspension(loop: Loop) -> bool:
    todo: list[ast.AST] = [*loop.body, *loop.orelse]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(node)
    return False


def _classify(loop: Loop, known: ProjectSurvey, modules: frozenset[str]) -> tuple[LoopKind, str] | None:
    facts = collect_facts(loop.body, modules)
    if isinstance(loop, ast.For) and _iterates_over_trainers(loop):
        return None
    if known.trains(facts):
        if _starts_trainings(loop, known, modules):
            return LoopKind.TRIALS, "each iteration creates an optimizer and trains with it"
        called = sorted(key[2:] for key in facts.calls & known.trainers)
        return LoopKind.TRAINING, "its body trains" if facts.trains else f"it calls {called[0]}, which trains"
    if isinstance(loop, ast.For) and iterates_over_batches(loop.iter):
        return LoopKind.PASS, "it iterates over batches"
    if has_training_counter(loop) and _does_something(loop):
        return LoopKind.TRAINING, "its counter is named like that of a training loop"
    return None


def _iterates_over_trainers(loop: ast.For) -> bool:
    """Whether a loop is a part of one training step: `for optimizer in optimizers: optimizer.step()`."""
    targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    calls = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)]
    trained = {name for call in calls if (name := trained_variable(call)) is not None}
    return bool(trained) and trained <= targets


def _starts_trainings(loop: Loop, known: ProjectSurvey, modules: frozenset[str]) -> bool:
    """Whether every iteration creates an optimizer unconditionally and contains a training loop."""
    unconditional = [node for node in loop.body if not isinstance(node, ast.If | ast.For | ast.While | ast.Try)]
    creates = known.creates_optimizer(collect_facts(unconditional, modules))
    inner = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.For | ast.While)]
    trains_inside = any(known.trains(collect_facts(one.body, modules)) for one in inner)
    return creates and (trains_inside or bool(collect_facts(loop.body, modules).calls & known.loop_holders))


def _does_something(loop: Loop) -> bool:
    """Whether the body does more than collect or print numbers."""
    calls = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)]
    return any(last_name(call.func) not in _BOOKKEEPING_CALLS for call in calls) or any(map(creates_optimizer, calls))
