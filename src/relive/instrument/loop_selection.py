"""Which loops of a file matter: those that train, those around them, and those over batches of data."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass

from relive.instrument.call_facts import (
    counts_training,
    facts_of,
    goes_over_batches,
    last_name,
    makes_optimizer,
    trained_by,
)
from relive.instrument.loop_names import made_unique, name_of
from relive.instrument.project_survey import Survey, modules_in

Loop = ast.For | ast.While
_IDLE = frozenset("append extend add print format join len range int float str item round sum write split".split())


class Kind(enum.Enum):
    """What a loop is for."""

    TRAINING = "training"  # the outermost of these is the main loop
    TRIALS = "trials"  # each iteration begins a training of its own: folds, seeds, a search
    PASS = "pass"  # over batches, without training


@dataclass(frozen=True, slots=True, eq=False)
class LoopChoice:
    """A loop that matters."""

    node: Loop
    name: str
    kind: Kind
    why: str

    @property
    def line(self) -> int:
        return self.node.lineno


def choose(tree: ast.Module, known: Survey) -> list[LoopChoice]:
    """The loops of a file that matter, in the order of the source.

    Log calls play no part: a statement that is added later must not change what is chosen.
    """
    if _uses_relive_loops(tree):
        return []
    modules = modules_in(tree)
    judged = [(loop, *found) for loop in _loops(tree) if (found := _judge(loop, known, modules)) is not None]
    judged.sort(key=lambda one: one[1] is Kind.PASS)  # `batch` is where it trains, and `batch_2` where it evaluates
    names = made_unique([name_of(loop) for loop, _, _ in judged])
    chosen = [LoopChoice(loop, name, kind, why) for name, (loop, kind, why) in zip(names, judged, strict=True)]
    return sorted(chosen, key=lambda choice: choice.line)


def _uses_relive_loops(tree: ast.Module) -> bool:
    """Whoever marked loops by hand knows best which matter."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr == "loop" and last_name(f.value) == "relive" for f in calls)


def _loops(node: ast.AST) -> Iterator[Loop]:
    """Loops of the module and of its functions, but not of class bodies, coroutines and generators."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.ClassDef):
            for member in child.body:
                if isinstance(member, ast.FunctionDef):
                    yield from _loops(member)
            continue
        if isinstance(child, ast.For | ast.While) and not _suspends(child):
            yield child
        yield from _loops(child)


def _suspends(loop: Loop) -> bool:
    todo: list[ast.AST] = [*loop.body, *loop.orelse]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(node)
    return False


def _judge(loop: Loop, known: Survey, modules: frozenset[str]) -> tuple[Kind, str] | None:
    facts = facts_of(loop.body, modules)
    if isinstance(loop, ast.For) and _goes_over_trainers(loop):
        return None
    if known.trains(facts):
        if _begins_trainings(loop, known, modules):
            return Kind.TRIALS, "each turn makes an optimizer and trains with it"
        called = sorted(key[2:] for key in facts.calls & known.trainers)
        return Kind.TRAINING, "its body trains" if facts.trains else f"it calls {called[0]}, which trains"
    if isinstance(loop, ast.For) and goes_over_batches(loop.iter):
        return Kind.PASS, "it goes over batches"
    if counts_training(loop) and _does_something(loop):
        return Kind.TRAINING, "it is counted as trainings are"
    return None


def _goes_over_trainers(loop: ast.For) -> bool:
    """`for optimizer in optimizers: optimizer.step()` is a part of a step, and no loop of its own."""
    targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    calls = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)]
    trained = {name for call in calls if (name := trained_by(call)) is not None}
    return bool(trained) and trained <= targets


def _begins_trainings(loop: Loop, known: Survey, modules: frozenset[str]) -> bool:
    """Does each iteration make an optimizer, whatever the iteration, and then hold a training loop?"""
    always = [node for node in loop.body if not isinstance(node, ast.If | ast.For | ast.While | ast.Try)]
    facts = facts_of(always, modules)
    makes = facts.makes or bool(facts.calls & known.makers)
    inner = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.For | ast.While)]
    loops = any(known.trains(facts_of(one.body, modules)) for one in inner)
    return makes and (loops or bool(facts_of(loop.body, modules).calls & known.loopers))


def _does_something(loop: Loop) -> bool:
    """A loop that only gathers or shows numbers is none that matters."""
    calls = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)]
    return any(last_name(call.func) not in _IDLE for call in calls) or any(map(makes_optimizer, calls))
