"""The report of `relive run --explain`: the selected loops, what they change, and what they read and do not change."""

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
        """Adds a finished main loop. Variables that it reads and no checkpoint holds were observed not to change."""
        user = find_user_frame(frame)
        if not self._is_on or user is None:
            return
        stored = set(checkpointed.get(name, {}))
        values = {used: user.f_locals.get(used, user.f_globals.get(used)) for used in sorted(read_in_loop(user, line))}
        self._unchanged[name] = [u for u, value in values.items() if u not in stored and not _has_no_state(value)]
        self._checkpointed = checkpointed

    def _print_report(self) -> None:
        for path, choice in self._choices:
            _print_line(f"{os.path.relpath(path)}:{choice.line} {choice.name} ({choice.kind.value}): {choice.why}")
            self._print_checkpointed(choice.name)
            if choice.name in self._unchanged:
                unchanged = ", ".join(self._unchanged[choice.name]) or "nothing that it reads"
                _print_line(f"    was observed not to change: {unchanged}")

        for name, framework in self._framework_loops.items():
            _print_line(f"{name} (training): {framework} runs it; checkpoints hold the whole state of {framework}")
            self._print_checkpointed(name)

    def _print_checkpointed(self, name: str) -> None:
        for subject, kind in sorted(self._checkpointed.get(name, {}).items()):
            _print_line(f"    keeps {subject}, which the loop changes ({kind.rpartition('.')[2]})")


def _has_no_state(value: Any) -> bool:
    return value is None or isinstance(value, _NO_STATE)


def _print_line(text: str) -> None:
    print(f"relive: {text}", file=sys.stderr)


explainer = Explainer()
