"""Laws of notebooks: their runs are replayed by their cells, in the order in which a real kernel executed them."""

from __future__ import annotations

import json

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


def test_values_of_earlier_cells_magics_await_and_display_are_as_they_were(script: Script) -> None:
    script.write("def double(x):\n    return 2 * x\n", "helper.py")
    cells = {
        "imports": "import asyncio\nimport numpy\nimport relive\nfrom helper import double",
        "magic": "%env RATE=0.5\nfolder = !echo data",
        "await": "async def fetch():\n    await asyncio.sleep(0)\n    return 3.0\n\nscale = await fetch()",
        "display": "display(scale)\nscale",
        "wrong": "1 / 0",
        "typo": "for in range(3)",
        "train": """
            %%time
            import os
            weights = numpy.zeros(2)
            with relive.checkpointing(weights=weights, every=1):
                for epoch in relive.loop("epoch", range(3)):
                    weights += double(scale) * float(os.environ["RATE"]) + len(folder[0])
                    relive.log("total", weights.sum())
        """,
        "end": "relive.log('last', float(weights[0]))",
    }
    with Kernel(script.project, cells) as kernel:
        ended = {cell: kernel.run(cell) for cell in cells}
    added = kernel.cells["train"] + "\n        relive.log('first', float(weights[0]) + _)"
    kernel.save({**kernel.cells, "train": added, "more": "relive.log('after', float(weights[1]))"})

    done = script.relive("replay", "first", "after", "--yes")

    assert [cell for cell, reply in ended.items() if reply.status != "ok"] == ["wrong", "typo"]
    assert "4 values added: 4 proven" in done.stdout
    assert values(script, "first") == [10.0, 17.0, 24.0]
    assert values(script, "after") == [21.0]


def test_cells_that_were_executed_again_are_replayed_as_often(script: Script) -> None:
    train = """
        with relive.checkpointing(weights=weights, every=1):
            for epoch in relive.loop("epoch", range(2)):
                weights += steps
                relive.log("total", weights.sum())
    """
    with Kernel(script.project, {"a": SETUP, "b": train}) as kernel:
        for cell in "abbab":
            assert kernel.run(cell).status == "ok"
    asked = kernel.cells["b"] + "\n        relive.log('first', weights[0])"
    kernel.save({"a": SETUP, "b": asked})

    done = script.relive("replay", "first", "--yes")

    assert "6 values added: 6 proven" in done.stdout
    frame = relive.dataframe("first", home=script.home)
    assert frame["first"].tolist() == [0.5, 1.0, 1.5, 2.0, 0.5, 1.0]
    assert frame["cell"].fillna(0).tolist() == [0, 0, 3, 3, 5, 5]


def test_a_question_about_the_end_restores_a_checkpoint_and_does_not_train_again(script: Script) -> None:
    train = """
        with relive.checkpointing(weights=weights, every=1):
            for epoch in relive.loop("epoch", range(4)):
                weights += steps
                last = weights[0]
                relive.log("total", weights.sum())
    """
    cells = {"a": SETUP, "b": train, "c": "relive.log('end', weights.sum())"}
    with Kernel(script.project, cells) as kernel:
        kernel.run_all()
    kernel.save({**cells, "c": cells["c"] + "\nrelive.log('last', last)"})

    done = json.loads(script.relive("replay", "last", "--json").stdout)

    assert (done["answer"]["values"], done["answer"]["verdicts"]) == (1, {"proven": 1})
    assert done["answer"]["reproduced"] == 1  # the value after the loop: its iterations were not run
    assert values(script, "last") == [2.0]


def test_each_of_several_runs_in_one_kernel_is_replayed(script: Script) -> None:
    train = TRAIN.replace('"first"', 'f"run {number}"').replace(
        "with relive.run", "number = number + 1\n    with relive.run", 1
    )
    asked = ASKED.replace('"first"', 'f"run {number}"').replace(
        "with relive.run", "number = number + 1\n    with relive.run", 1
    )
    setup = SETUP + "\n    number = 0\n"
    with Kernel(script.project, {"a": setup, "b": train}) as kernel:
        for cell in "abb":
            assert kernel.run(cell).status == "ok"
    kernel.save({"a": setup, "b": asked})

    done = script.relive("replay", "largest", "--yes")

    assert "2 runs, 8 values added: 8 proven" in done.stdout
    assert sorted(values(script, "largest")) == [0.5, 1.5, 3.0, 5.0, 5.5, 6.5, 8.0, 10.0]


def test_a_run_whose_kernel_was_killed_is_replayed_as_far_as_it_came(script: Script) -> None:
    train = """
        with relive.checkpointing(weights=weights, every=1):
            for epoch in relive.loop("epoch", range(4)):
                weights += steps
                relive.log("total", weights.sum())
    """
    kernel = Kernel(script.project, {"a": SETUP, "b": train, "c": "import os; os.kill(os.getpid(), 9)"})
    kernel.run("a")
    kernel.run("b")
    kernel.kill()
    kernel.save({"a": SETUP, "b": kernel.cells["b"] + "\n        relive.log('first', weights[0])"})

    done = script.relive("replay", "first", "--yes")

    assert "4 values added: 4 proven" in done.stdout
    assert values(script, "first") == [0.5, 1.0, 1.5, 2.0]


def test_a_run_that_was_interrupted_is_replayed_up_to_there(script: Script) -> None:
    train = """
        import time
        with relive.run("first"):
            with relive.checkpointing(weights=weights, every=1):
                for epoch in relive.loop("epoch", range(4)):
                    weights += steps
                    relive.log("total", weights.sum())
                    if epoch == 2:
                        print("now", flush=True)
                        time.sleep(60)
    """
    with Kernel(script.project, {"a": SETUP, "b": train}) as kernel:
        kernel.run("a")
        assert kernel.run("b", interrupt_after="now").error.startswith("KeyboardInterrupt")
    asked = kernel.cells["b"].replace(
        "            weights += steps", "            weights += steps\n            relive.log('first', weights[0])"
    )
    kernel.save({"a": SETUP, "b": asked})

    script.relive("replay", "first", "epoch < 2", "--yes")

    assert values(script, "first") == [0.5, 1.0]


def test_what_follows_an_interrupted_cell_of_the_run_is_refused_with_the_cell(script: Script) -> None:
    slow = """
        import time
        for epoch in relive.loop("slow", range(3)):
            weights += steps
            print("now", flush=True)
            time.sleep(60)
    """
    cells = {"a": SETUP, "x": slow, "b": "relive.log('total', weights.sum())"}
    with Kernel(script.project, cells) as kernel:
        for cell in cells:
            kernel.run(cell, interrupt_after="now")
    kernel.save({**cells, "b": cells["b"] + "\nrelive.log('largest', weights.max())"})

    done = script.relive("replay", "largest", "--yes", check=False)

    assert done.returncode == 1
    assert "cell In [2] (`import time`) was interrupted during the run" in done.stderr


def test_a_cell_that_failed_and_one_that_was_redefined_are_executed_as_they_were(script: Script) -> None:
    grow = "def grow(weights):\n    weights += steps * {factor}\n    return weights"
    train = """
        with relive.run():
            with relive.checkpointing(weights=weights, every=1):
                for epoch in relive.loop("epoch", range(2)):
                    weights = grow(weights)
                    relive.log("total", weights.sum())
        missing
    """
    with Kernel(script.project, {"a": SETUP, "f": grow.format(factor=1), "b": train}) as kernel:
        replies = [kernel.run(cell) for cell in "afb"]
        kernel.save({"a": SETUP, "f": grow.format(factor=2), "b": train})
        replies += [kernel.run(cell) for cell in "fb"]
    asked = grow.format(factor=2).replace("return", "relive.log('first', weights[0])\n    return")
    kernel.save({"a": SETUP, "f": asked, "b": train})

    done = script.relive("replay", "first", "--yes")

    assert [reply.error[:9] for reply in replies] == ["", "", "NameError", "", "NameError"]
    assert "2 runs, 4 values added: 4 proven" in done.stdout
    assert sorted(values(script, "first")) == [0.5, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("import time\nprint('now', flush=True)\ntime.sleep(60)", "cell In [2] (`import time`) was interrupted"),
        ("name = input() if False else 'me'", "cell In [2] (`name = input() if False else 'me'`) reads what was typed"),
    ],
)
def test_a_cell_that_is_in_the_way_is_named_with_the_remedy(script: Script, cell: str, reason: str) -> None:
    with Kernel(script.project, {"a": SETUP, "x": cell, "b": TRAIN}) as kernel:
        kernel.run("a")
        kernel.run("x", interrupt_after="now")
        kernel.run("b")
    kernel.save({"a": SETUP, "x": cell, "b": ASKED})

    done = script.relive("replay", "largest", "--yes", check=False)

    assert done.returncode == 1
    assert reason in done.stderr
    assert "record the run again" in done.stderr
