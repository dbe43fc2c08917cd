"""`%load_ext relive` in a real kernel: cells that never mention relive again are recorded, and replayed."""

from __future__ import annotations

import pytest

import relive
from tests.conftest import Script
from tests.kernels import Kernel

pytestmark = pytest.mark.long

SETUP = """
    import random

    class Model:
        def __init__(self):
            self.weight = 0.0

        def step(self, rate):
            self.weight += rate * random.random()

    random.seed(3)
    model = Model()
"""
TRAIN = """
    for epoch in range(5):
        for batch in range(20):
            model.step(0.5)
        print(f"loss: {1 / (1 + model.weight):.3f}")
"""


def test_cells_are_recorded_hands_free_and_a_question_is_answered(script: Script) -> None:
    with Kernel(script.project, {"load": "%load_ext relive", "a": SETUP, "b": TRAIN}) as kernel:
        replies = {cell: kernel.run(cell) for cell in kernel.cells}
    asked = kernel.cells["b"] + "\n    print(f'weight: {model.weight}')"
    kernel.save({**kernel.cells, "b": asked})

    done = script.relive("replay", "weight", "--yes")

    assert [reply.error for reply in replies.values()] == [""] * 3
    assert replies["b"].stdout.count("loss: ") == 5
    assert "5 values added: 5 proven" in done.stdout
    frame = relive.dataframe("loss", "weight", home=script.home)
    assert frame["epoch"].tolist() == [0, 1, 2, 3, 4]
    assert (1 / (1 + frame["weight"])).tolist() == pytest.approx(frame["loss"].tolist())


def test_the_extension_does_nothing_when_relive_is_off(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIVE_OFF", "1")

    with Kernel(script.project, {"load": "%load_ext relive", "a": SETUP, "b": TRAIN}) as kernel:
        kernel.run_all()

    assert not script.home.exists()
