"""Which variables of added code outlive an iteration: a replay from a checkpoint would begin them anew."""

from __future__ import annotations

import pytest

from relive.hindsight.analysis.reads.added_state import added_lines, find_added_state

OLD = """\
import torch
net = make()
def step(batch):
    return net(batch)
for epoch in range(9):
    for batch in data:
        loss = step(batch)
    validate()
print("done")
"""
# Added code, as {the line of OLD before which it stands: its text}
KEPT = {
    "a sum over all steps": ({5: "total = 0.0", 8: "    total += loss", 9: 'log("x", total)'}, ["total"]),
    "a sum that is asked in each epoch": ({5: "total = 0.0", 8: '    total += loss\n    log("x", total)'}, ["total"]),
    "a list": ({5: "seen = []", 8: '    seen.append(loss)\n    log("x", len(seen))'}, ["seen"]),
    "a dict": ({5: "seen = {}", 8: '    seen[epoch] = loss\n    log("x", len(seen))'}, ["seen"]),
    "the value of before": ({5: "last = 0", 8: '    log("x", loss - last)\n    last = loss'}, ["last"]),
    "what the loop left": ({8: "    last = loss", 9: 'log("x", last)'}, ["last"]),
    "an attribute": ({8: '    log("x", net.best)\n    net.best = loss'}, [".best"]),
    "an attribute of a function": ({4: "    step.calls = step.calls + 1", 8: '    log("x", step.calls)'}, [".calls"]),
    "a global": ({3: "count = 0", 4: "    global count\n    count += 1", 8: '    log("x", count)'}, ["count"]),
    "a default": ({3: "def note(x, seen=[]):\n    seen.append(x)\n    return len(seen)", 8: '    log("x", note(loss))'},
                  ["note"]),
}  # fmt: skip
LOCAL = {
    "the statement alone": {8: '    log("x", loss)'},
    "a value that is computed for it": {8: '    norm = loss.norm()\n    log("x", norm)'},
    "a sum over the steps of an epoch": {6: "    total = 0", 7: "        total += 1", 8: '    log("x", total)'},
    "a loop of its own": {8: '    hits = 0\n    for one in data:\n        hits += net(one)\n    log("x", hits)'},
    "a list of its own": {8: '    found = []\n    fill(found)\n    found.append(1)\n    log("x", found)'},
    "a constant before the loop": {5: "first = net.w.clone()", 8: '    log("x", net.w - first)'},
    "a function": {3: "def twice(x):\n    y = 2 * x\n    return y", 8: '    log("x", twice(loss))'},
    "a mode that is set and reset": {8: '    net.eval()\n    log("x", net(1))\n    net.train()'},
    "a comprehension": {8: '    log("x", sum(p.sum() for g in net.groups for p in g))'},
    "a lambda": {8: '    log("x", max(data, key=lambda one: one[0]))'},
    "an import": {1: "import numpy as np", 8: '    log("x", np.mean(loss))'},
}
MAIN = "for epoch in range(9):"


def with_added(added: dict[int, str]) -> str:
    lines = OLD.splitlines()
    return "".join(f"{added[at]}\n{line}\n" if at in added else f"{line}\n" for at, line in enumerate(lines, 1))


def found(added: dict[int, str]):
    text = with_added(added)
    return find_added_state(OLD, text, {text.splitlines().index(MAIN) + 1})


@pytest.mark.parametrize("case", KEPT)
def test_it_is_kept(case):
    added, names = KEPT[case]
    assert list(found(added).kept) == names


@pytest.mark.parametrize("case", LOCAL)
def test_it_is_made_anew_in_each_iteration(case):
    assert found(LOCAL[case]).kept == ()


def test_statements_in_loops_are_told_so_that_those_loops_run():
    added = LOCAL["a sum over the steps of an epoch"]
    lines = with_added(added).splitlines()

    assert [lines[line - 1].strip() for line in found(added).lines] == ["total = 0", "total += 1", 'log("x", total)']


def test_added_lines_are_found_among_equal_and_changed_ones():
    assert added_lines("a\nb\n", "a\nx\nb\n") == {2}
    assert added_lines("a\nb\nc\n", "a\nB\nc\nd\n") == {2, 4}
    assert added_lines("", "a\n") == {1}
