"""The report of `relive run --explain`: the selected loops, their checkpointed state, and state taken as unchanged."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import read_in_loop
from relive.checkpoint.state import find_user_frame
from relive.instrument import LoopChoice
from relive.record import session

_RULES = {
    "module": "a module near the loop: parameters, buffers and modes",
    "optimizer": "an optimizer near the loop: the state of each parameter, and its groups",
    "state_dict": "has a state_dict: schedulers, scalers, loaders",
    "generator": "a random generator near the loop",
    "object": "an object of a class of the project: what its methods change",
    "module attributes": "what the project's own modules gather besides parameters",
    "attributes": "an estimator near the loop: its fitted state",
    "batches": "an iterator over a data loader: its position",
    "environment": "a simulation environment: its state and its generators",
    "attribute": "an attribute that samplers count with",
    "array": "an array",
    "file": "a file that is read piece by piece: its position",
    "places": "state in functions, classes and modules of the project",
}
_EXTRAS = {
    "random states": "the global generators of Python, numpy and torch",
    "variables": "set or changed in the loop, and read later or by its next iteration",
    "around": "computed so far in the enclosing iteration",
}
_NO_STATE = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type)


class Explainer:
    """Collects the facts while a script runs, and prints the report at exit."""

    def __init__(self) -> None:
        self._is_on = False
        self._choices: list[tuple[str, LoopChoice]] = []
        self._framework_loops: dict[str, str] = {}  # loop name → framework that runs it
        self._unchanged: dict[str, list[str]] = {}
        self._checkpointed: Mapping[str, Mapping[str, str]] = {}

    def start(self) -> None:
        self._is_on = True
        session.at_exit.append(self._print_report)

    def add_choices(self, path: str, choices: Sequence[LoopChoice]) -> None:
        if self._is_on:
            self._choices += [(path, choice) for choice in choices]

    def add_framework_loop(self, name: str, framework: str) -> None:
        """Adds a loop that a framework runs and whose state is checkpointed."""
        self._framework_loops[name] = framework

    def end_loop(
        self, name: str, frame: FrameType | None, line: int, checkpointed: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Adds a finished main loop. Variables that it reads and no checkpoint holds are taken as unchanged."""
        user = find_user_frame(frame)
        if not self._is_on or user is None:
            return
        stored = {_bare_name(subject).partition(".")[0] for subject in checkpointed.get(name, {})}
        values = {used: user.f_locals.get(used, user.f_globals.get(used)) for used in sorted(read_in_loop(user, line))}
        self._unchanged[name] = [u for u, value in values.items() if u not in stored and not _has_no_state(value)]
        self._checkpointed = checkpointed

    def _print_report(self) -> None:
        for path, choice in self._choices:
            _print_line(f"{os.path.relpath(path)}:{choice.line} {choice.name} ({choice.kind.value}): {choice.why}")
            self._print_checkpointed(choice.name)
            if choice.name in self._unchanged:
                unchanged = ", ".join(self._unchanged[choice.name]) or "nothing that it reads"
                _print_line(f"    takes as unchanged: {unchanged}")

        for name, framework in self._framework_loops.items():
            _print_line(f"{name} (training): {framework} runs it; checkpoints hold the whole state of {framework}")
            self._print_checkpointed(name)

    def _print_checkpointed(self, name: str) -> None:
        for subject, kind in sorted(_listed_state(self._checkpointed.get(name, {}))):
            _print_line(f"    keeps {_bare_name(subject)}: {_rule_text(subject, kind)}")


def _listed_state(state: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the contents of a checkpoint without its internal entries."""
    return [
        (subject, kind) for subject, kind in state.items() if kind != "extra" or subject.partition(":")[0] in _EXTRAS
    ]


def _bare_name(subject: str) -> str:
    """Returns `model` for `near:model` and `variables:model`."""
    name = subject.partition(":")[2] or subject
    return name.partition(":")[2] if subject.startswith("around") else name


def _rule_text(subject: str, kind: str) -> str:
    start = subject.partition(":")[0]
    return _EXTRAS.get(start) or _RULES.get(kind, kind)


def _has_no_state(value: Any) -> bool:
    return value is None or isinstance(value, _NO_STATE)


def _print_line(text: str) -> None:
    print(f"relive: {text}", file=sys.stderr)


explainer = Explainer()
