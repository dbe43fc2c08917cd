"""What `relive run --explain` says: which loops were chosen, what is kept of them, what is taken as unchanged."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import used_in
from relive.checkpoint.state import users_frame
from relive.instrument import LoopChoice
from relive.record import session

_RULES = {
    "module": "a module near the loop: parameters, buffers and modes",
    "optimizer": "an optimizer near the loop: the state of each parameter, and its groups",
    "state_dict": "has a state_dict: schedulers, scalers, loaders",
    "generator": "a random generator near the loop",
    "object": "an object of a class of the project: what its methods change",
    "module attributes": "what the project's own modules gather besides parameters",
    "attributes": "an estimator near the loop: all that it has learnt",
    "batches": "an iterator over a data loader: its place",
    "environment": "an environment that an agent acts in: its state and its generators",
    "attribute": "an attribute that samplers count with",
    "array": "an array",
    "file": "a file that is read bit by bit: its place",
    "places": "state in functions, classes and modules of the project",
}
_EXTRAS = {
    "random states": "the global generators of Python, numpy and torch",
    "variables": "set or changed in the loop, and read later or by its next iteration",
    "around": "worked out so far in the iteration around it",
}
_NO_STATE = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type)


class Explainer:
    """Gathers what is to be said while a script runs, and says it when that ends."""

    def __init__(self) -> None:
        self._is_on = False
        self._chosen: list[tuple[str, LoopChoice]] = []
        self._led: dict[str, str] = {}  # loops that a library runs
        self._unchanged: dict[str, list[str]] = {}
        self._kept: Mapping[str, Mapping[str, str]] = {}

    def start(self) -> None:
        self._is_on = True
        session.at_exit.append(self._tell)

    def chose(self, path: str, chosen: Sequence[LoopChoice]) -> None:
        if self._is_on:
            self._chosen += [(path, choice) for choice in chosen]

    def led(self, name: str, by: str) -> None:
        """A library runs a loop, and its state is kept."""
        self._led[name] = by

    def ended(self, name: str, frame: FrameType | None, line: int, kept: Mapping[str, Mapping[str, str]]) -> None:
        """A main loop is over. What it reads and no checkpoint holds is taken as unchanged."""
        user = users_frame(frame)
        if not self._is_on or user is None:
            return
        there = {_bare_name(subject).partition(".")[0] for subject in kept.get(name, {})}
        read = [(one, user.f_locals.get(one, user.f_globals.get(one))) for one in sorted(used_in(user, line))]
        self._unchanged[name] = [one for one, value in read if one not in there and not _has_no_state(value)]
        self._kept = kept

    def _tell(self) -> None:
        for path, choice in self._chosen:
            _print_line(f"{os.path.relpath(path)}:{choice.line} {choice.name} ({choice.kind.value}): {choice.why}")
            self._tell_kept(choice.name)
            if choice.name in self._unchanged:
                _print_line(f"    takes as unchanged: {', '.join(self._unchanged[choice.name]) or 'nothing that it reads'}")

        for name, by in self._led.items():
            _print_line(f"{name} (training): {by} runs it; it is kept with all that {by} holds")
            self._tell_kept(name)

    def _tell_kept(self, name: str) -> None:
        for subject, kind in sorted(_listed_state(self._kept.get(name, {}))):
            _print_line(f"    keeps {_bare_name(subject)}: {_rule_text(subject, kind)}")


def _listed_state(kept: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a checkpoint holds, but for its notes to itself."""
    return [
        (subject, kind) for subject, kind in kept.items() if kind != "extra" or subject.partition(":")[0] in _EXTRAS
    ]


def _bare_name(subject: str) -> str:
    """`model` of `near:model` and `variables:model`."""
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
