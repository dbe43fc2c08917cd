"""Laws of live-outs: variables that later code or the next iteration reads, not those that only the body uses."""

from __future__ import annotations

import ast
import textwrap

import pytest

from relive.checkpoint.analysis.live_variables import live_outs_of_loop


def live_outs_at(source: str) -> set[str]:
    text = textwrap.dedent(source).lstrip("\n")
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "LOOP" in row)
    return set(live_outs_of_loop(ast.parse(text), line))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("total = 0\nfor x in data:  # LOOP\n    total += x", {"total"}),
        ("for x in data:  # LOOP\n    y = x * 2\n    print(y)", set()),
        ("for x in data:  # LOOP\n    last = x\nprint(last)", {"last"}),
        ("best = 0\nfor x in data:  # LOOP\n    if x > best:\n        best = x", {"best"}),
        ("seen = []\nfor x in data:  # LOOP\n    seen.append(x)", {"seen"}),
        ("table = {}\nfor x in data:  # LOOP\n    table[x] = 1", {"table"}),
        ("for x in data:  # LOOP\n    state.count = x", {"state"}),
        ("h = None\nfor x in data:  # LOOP\n    h = cell(x, h)", {"h"}),
        ("for x in data:  # LOOP\n    pass\nprint(x)", {"x"}),
        ("for i, (a, b) in data:  # LOOP\n    c = a\nuse(b, c)", {"b", "c"}),
        ("for x in data:  # LOOP\n    with f() as g:\n        y = g\nprint(y)", {"y"}),
        ("while go:  # LOOP\n    step = step + 1", {"step"}),
        ("def f():\n    n = 0\n    for x in data:  # LOOP\n        n += 1\n    return n", {"n"}),
        ("for x in data:  # LOOP\n    if (n := len(x)) > 3:\n        pass\nprint(n)", {"n"}),
        ("for x in data:  # LOOP\n    y = 1\nelse:\n    print(y)", {"y"}),
        # A variable that an iteration assigns before it reads it is no state, however deeply nested that is.
        ("for x in data:  # LOOP\n    while go:\n        m = make(x)\n        m.sample()", set()),
        ("for x in data:  # LOOP\n    total = 0\n    for y in x:\n        total += y\n    print(total)", set()),
        ("for x in data:  # LOOP\n    if x:\n        m = 1\n    else:\n        m = 2\n    print(m)", set()),
        ("for x in data:  # LOOP\n    if x:\n        continue\n    else:\n        m = 2\n    print(m)", set()),
        ("for x in data:  # LOOP\n    try:\n        m = next(i)\n    except E:\n        m = 0\n    print(m)", set()),
        ("for x in data:  # LOOP\n    y = [m for m in x]\n    m = 1", set()),
        ("for x in data:  # LOOP\n    try:\n        m = next(i)\n    except E:\n        pass\n    print(m)", {"m"}),
        ("for x in data:  # LOOP\n    for y in x:\n        m = y\n    print(m)", {"m"}),
        ("for x in data:  # LOOP\n    while m:\n        m = use(x)", {"m"}),
        ("for x in data:  # LOOP\n    if x:\n        m = 1\n    print(m)", {"m"}),
        ("while m.go():  # LOOP\n    m = make()", {"m"}),
        ("for x in data:  # LOOP\n    f = lambda: m\n    m = x", {"m"}),
    ],
)
def test_live_outs(source: str, expected: set[str]) -> None:
    assert live_outs_at(source) == expected


def test_a_line_without_a_loop_has_no_live_outs() -> None:
    assert live_outs_of_loop(ast.parse("x = 1"), 1) == ()
