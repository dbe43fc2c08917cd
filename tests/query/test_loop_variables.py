"""Laws of where clauses: a loop's variable names the column of the loop, too."""

from __future__ import annotations

from typing import Any

import pytest

import relive
from relive.errors import QueryError

VERBS = """
import relive
for ep in relive.loop("epoch", range(10, 15)):
    for i, x in relive.loop("step", enumerate([5.0, 6.0, 7.0])):
        relive.log("loss", ep + x)
    relive.log("epoch_loss", ep)
"""
HANDS_FREE = """
class Net:
    def step(self):
        pass
opt = Net()
n_epochs = 4
for i in range(n_epochs):
    opt.step()
    print(f"loss {i * 0.5}")
"""


def losses(script: Any, where: str, name: str = "loss") -> list[float]:
    return relive.dataframe(name, where=where, home=script.home)[name].tolist()


def test_a_variable_stands_for_the_column_of_its_loop(script: Any) -> None:
    script(VERBS)

    assert losses(script, "ep = 12") == losses(script, "epoch = 12") == [17.0, 18.0, 19.0]
    assert losses(script, "ep > 10 and ep < 13 and i = 1") == [17.0, 18.0]
    assert losses(script, "ep in (11, 13) and epoch <> 13", "epoch_loss") == [11]


def test_a_variable_of_several_loops_stands_for_none(script: Any) -> None:
    script("import relive\nfor e in relive.loop('a', range(2)):\n    for e in relive.loop('b', range(2)):\n"
           "        relive.log('loss', e)\n")  # fmt: skip

    with pytest.raises(QueryError, match="e"):
        losses(script, "e = 1")


@pytest.mark.long
def test_replays_and_hands_free_runs_know_the_variables(script: Any) -> None:
    script.write(HANDS_FREE)
    script.relive("run", str(script.project / "train.py"))
    assert losses(script, "i = 2") == losses(script, "epoch = 2") == [1.0]
    script.write(HANDS_FREE + "    print(f'double {i * 2}')\n")

    relive.replay("double", where="i >= 2", home=script.home, workers=1)

    assert losses(script, "i >= 2", "double") == [4, 6]
