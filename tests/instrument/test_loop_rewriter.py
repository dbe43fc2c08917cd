"""Rewritten code behaves as before, line by line."""

from __future__ import annotations

import ast
import contextlib
import io
import sys
import textwrap
import types
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.instrument import HOOK_NAME, ProjectSurvey, instrument_loops


class FakeHook:
    """A hook that records nothing and collects the names of the loops it is called for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def main(self, name: str, items: Iterable[Any]) -> Iterable[Any]:
        self.calls.append(name)
        return items

    loop = main

    def main_iterations(self, name: str) -> types.SimpleNamespace:
        self.calls.append(name)
        return types.SimpleNamespace(go=bool, leave=lambda: self.calls.append(f"left {name}"))

    iterations = main_iterations
    print = staticmethod(print)

    def text(self, *parts: Any) -> str:
        return "".join(part if isinstance(part, str) else format(part[0], part[2]) for part in parts)


def run(source: str, *, rewritten: bool) -> tuple[dict[str, Any], str, list[int], FakeHook]:
    """Runs a source, rewritten or not; returns its variables, its output, the executed lines and the hook."""
    tree, hook = ast.parse(source), FakeHook()
    if rewritten:
        instrument_loops(tree, ProjectSurvey())
    code, lines = compile(tree, "the-source", "exec"), []

    def trace(frame: types.FrameType, event: str, _arg: object) -> Any:
        if frame.f_code.co_filename == "the-source" and event == "line":
            lines.append(frame.f_lineno)
        return trace

    values: dict[str, Any] = {HOOK_NAME: hook, "lr": 0.5}
    out, before = io.StringIO(), sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.redirect_stdout(out):
            exec(code, values)
    finally:
        sys.settrace(before)
    own = {name: value for name, value in values.items() if not name.startswith("__")}
    return own, out.getvalue(), lines, hook


SOURCE = textwrap.dedent("""
    w, seen = 4.0, []
    for epoch in range(5):
        n = 0
        while n < 3:
            n += 1
            if n == {skip}:
                continue
            w -= lr * w
            seen.append((epoch, n))
            if n == {stop}:
                break
        else:
            seen.append("ran out")
        if epoch == {end}:
            break
        print(f"epoch {{epoch}} loss: {{w:.3f}}", n)
    else:
        print("over")
""")


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 6))
def test_else_break_and_continue_keep_their_meaning(skip: int, stop: int, end: int):
    source = SOURCE.format(skip=skip, stop=stop, end=end)
    values, out, _, _ = run(source, rewritten=False)
    rewritten_values, rewritten_out, _, hook = run(source, rewritten=True)

    assert (rewritten_values, rewritten_out) == (values, out)
    assert hook.calls[:2] == ["epoch", "turn"]
    assert hook.calls.count("turn") == hook.calls.count("left turn")


def test_every_line_keeps_its_number():
    source = SOURCE.format(skip=1, stop=3, end=2)
    lines = run(source, rewritten=False)[2]
    rewritten_values = run(source, rewritten=True)[2]

    # A `while` runs its own line once more when it is set up and when it is left, as a `with` does.
    assert set(rewritten_values) == set(lines)
    assert [line for line in rewritten_values if line != 5] == [line for line in lines if line != 5]


def test_a_file_that_defines_its_own_print_keeps_it():
    source = "def print(x): seen.append(x)\nseen = []\nprint(f'{1}')\n"
    values, _, _, _ = run(source, rewritten=True)

    assert values["seen"] == ["1"]


def test_conversions_and_format_specs_of_f_strings_are_kept():
    tree = ast.parse("print(f'{x!r:>{n}} {y:.2f}')")
    instrument_loops(tree, ProjectSurvey())

    assert "text((x, 114, f'>{n}'), ' ', (y, -1, f'.2f'))" in ast.unparse(tree)


@pytest.mark.parametrize("source", ["class A:\n    for epoch in range(3):\n        step()\n", "x = 1\n"])
def test_a_file_without_training_loops_is_not_changed(source: str):
    tree = ast.parse(source)

    assert instrument_loops(tree, ProjectSurvey()) == []
    assert ast.dump(tree) == ast.dump(ast.parse(source))
