"""Questions that add up over a run are answered as if they had been asked from the start."""

from __future__ import annotations

import json

import pytest

TRAIN = """
    import random, time
    import relive

    random.seed(1)
    w = 1.0
    with relive.checkpointing(every=1):
        for epoch in relive.loop("epoch", range(5)):
            for step in relive.loop("step", range(3)):
                w += random.random()
            relive.log("w", w)
"""
QUESTIONS = {
    "over all steps": (
        ("w = 1.0", "w = 1.0\n    total = 0.0"),
        ("w += random.random()", "w += random.random()\n                total += w"),
        ('relive.log("w", w)', 'relive.log("w", w)\n            relive.log("x", total)'),
    ),
    "over the steps of an epoch": (
        ("for step in", "total = 0.0\n            for step in"),
        ("w += random.random()", "w += random.random()\n                total += w"),
        ('relive.log("w", w)', 'relive.log("w", w)\n            relive.log("x", total)'),
    ),
    "since the epoch before": (
        ("w = 1.0", "w = 1.0\n    before = w"),
        ('relive.log("w", w)', 'relive.log("w", w)\n            relive.log("x", w - before)\n            before = w'),
    ),
}


@pytest.mark.parametrize("which", QUESTIONS)
@pytest.mark.parametrize("where", ["", "epoch >= 3"])
def test_it_is_what_the_run_would_have_logged(script, shared_truth, which, where):
    script(TRAIN)
    asked = TRAIN
    for old, new in QUESTIONS[which]:
        asked = asked.replace(old, new)
    script.write(asked)

    script.relive("replay", "x", *([where] if where else []), "--yes")

    rows = [json.loads(line) for line in script.relive("dataframe", "x", "--json").stdout.splitlines()]
    found = {row["epoch"]: row["x"] for row in rows}
    truth = shared_truth(asked)
    assert found.keys() >= {epoch for epoch in truth if not where or epoch >= 3}
    assert found == {epoch: truth[epoch] for epoch in found}


@pytest.fixture
def shared_truth(tmp_path_factory):
    """What a script logs as x that asked from the start."""
    from tests.conftest import Script

    def truth(source: str) -> dict[int, float]:
        twin = Script(tmp_path_factory.mktemp("twin"))
        twin(source)
        rows = [json.loads(line) for line in twin.relive("dataframe", "x", "--json").stdout.splitlines()]
        return {row["epoch"]: row["x"] for row in rows}

    return truth


LAZY = """
    import random
    import relive

    class Model:
        def __init__(self):
            self.w, self._n = [1.0], None
        def size(self):
            if self._n is None:
                self._n = len(self.w)
            return self._n

    random.seed(1)
    m = Model()
    with relive.checkpointing(every=1):
        for epoch in relive.loop("epoch", range(4)):
            m.w.append(random.random())
            relive.log("w", sum(m.w))
"""


def test_a_statement_that_fills_a_cache_does_not_contradict_itself(script):
    script(LAZY)
    script.write(LAZY + '            relive.log("x", m.size())\n')

    told = script.relive("replay", "x", "--yes", check=False)

    rows = [json.loads(line) for line in script.relive("dataframe", "x", "--json").stdout.splitlines()]
    assert [row["epoch"] for row in rows if row["x"] is not None] == [0, 1, 2, 3]
    assert {row["x_verdict"] for row in rows} == {"unverified"}
    assert "an added statement itself changes m._n" in told.stdout + told.stderr


HOOKED = """
    import random
    import relive

    class Net:
        def __init__(self):
            self.w, self.hooks = 1.0, []
        def __call__(self, x):
            self.w = 0.9 * self.w + x
            for hook in self.hooks:
                hook(self.w)
            return self.w

    random.seed(1)
    net = Net()
    with relive.checkpointing(every=1):
        for epoch in relive.loop("epoch", range(4)):
            for step in relive.loop("step", range(3)):
                out = net(random.random())
            relive.log("w", out)
"""


def test_hooks_that_added_code_registers_are_called_in_every_loop(script, shared_truth):
    asked = HOOKED.replace(
        "    with relive", "    seen = []\n    net.hooks.append(lambda w: seen.append(w))\n    with relive"
    )
    asked += '            relive.log("x", sum(seen))\n'
    script(HOOKED)
    script.write(asked)

    script.relive("replay", "x", "--yes", check=False)

    rows = [json.loads(line) for line in script.relive("dataframe", "x", "--json").stdout.splitlines()]
    assert {row["epoch"]: row["x"] for row in rows} == shared_truth(asked)
