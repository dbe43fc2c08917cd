"""Laws of notebooks: their runs are replayed by their cells, in the order in which a real kernel executed them."""

from __future__ import annotations

import pytest

import relive
from tests.conftest import Script
from tests.kernels import Kernel

pytestmark = pytest.mark.long

SETUP = """
    import numpy
    import relive

    weights = numpy.zeros(3)
    steps = numpy.array([0.5, 0.25, 0.125])
"""
TRAIN = """
    with relive.run("first"):
        with relive.checkpointing(weights=weights, every=1):
            for epoch in relive.loop("epoch", range(4)):
                weights += steps * (epoch + 1)
                relive.log("total", weights.sum())
"""
ASKED = """
    with relive.run("first"):
        with relive.checkpointing(weights=weights, every=1):
            for epoch in relive.loop("epoch", range(4)):
                weights += steps * (epoch + 1)
                relive.log("largest", weights.max())
                relive.log("total", weights.sum())
"""
LARGEST = [0.5, 1.5, 3.0, 5.0]


def values(script: Script, name: str) -> list[float]:
    return relive.dataframe(name, home=script.home)[name].dropna().tolist()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_statement_that_is_added_in_the_notebook_gets_proven_values(script: Script, *, is_named: bool) -> None:
    with Kernel(script.project, {"a": SETUP, "b": TRAIN}, is_named=is_named) as kernel:
        kernel.run_all()
    kernel.save({"a": SETUP, "b": ASKED})

    done = script.relive("replay", "largest", "--yes")

    assert "4 values added: 4 proven" in done.stdout
    assert values(script, "largest") == LARGEST
