"""Laws of statements added to scripts that don't import relive: they change nothing else."""

from __future__ import annotations

from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.journal import parse_run

# Without the print, `for step in …` only collects numbers, so it is no loop of the run; `evaluate` would make it one.
COLLECTS = """
class Net:
    def __init__(self):
        self.w = 0.5
    def step(self):
        self.w = self.w * 0.9 + 0.01
net = Net()
def evaluate():
    return net.w * 2
{early}
for epoch in range(4):
    net.step()
    history = []
    for steps in range(3):
        history.append(steps)
        {inside}
    print(f"loss {{net.w}}")
    {after}
"""


def run_and_replay(script: Any, source: str, name: str, **added: str) -> Any:
    empty = dict.fromkeys(("early", "inside", "after"), "pass")
    script.write(source.format(**empty))
    script.relive("run", str(script.project / "train.py"))
    script.write(source.format(**{**empty, **added}))
    (run,) = relive.replay(name, home=script.home, workers=1).runs
    return run


@pytest.mark.long
@pytest.mark.parametrize("statement", ["print(f'double {evaluate()}')", "print('double', net.fit() or evaluate())"])
def test_an_added_print_does_not_change_which_loops_are_found(script: Any, statement: str) -> None:
    source = COLLECTS.replace("def step(self)", "def fit(self):\n        return 0\n    def step(self)")

    run = run_and_replay(script, source, "double", inside=statement)

    assert (run.missing, run.mismatches) == ([], [])
    table = relive.dataframe("double", home=script.home)
    assert "steps" not in table
    assert len(table) == 12


SOMETIMES = """
import wandb
class Net:
    def __init__(self):
        self.w = 0.5
    def step(self):
        self.w = self.w * 0.9 + 0.01
net = Net()
for epoch in range(4):
    net.step()
    FIRST
    if USES:
        wandb.log({{"loss": net.w}})
    SECOND
    {after}
"""


def count_losses(script: Any) -> int:
    (run,) = Home(script.home).run_ids()
    recorded = parse_run(Home(script.home), run)[0]
    return int((recorded.name == recorded.names.index("loss")).sum()) if "loss" in recorded.names else 0


@pytest.mark.long
@pytest.mark.parametrize("place", ["FIRST", "SECOND"])
@pytest.mark.parametrize("uses", ["True", "False", "epoch % 2"])
def test_a_printed_metric_is_recorded_unless_its_logger_ran_there(script: Any, uses: str, place: str) -> None:
    package = script.project / "wandb" / "sdk"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("from wandb.sdk.wandb_run import Run\nrun = Run()\nlog = run.log\n")
    (package / "__init__.py").write_text("")
    (package / "wandb_run.py").write_text("class Run:\n    def log(self, data):\n        pass\n")
    printed = 'print(f"loss {{net.w}}")'
    source = SOMETIMES.replace("USES", uses).replace(place, printed).replace("FIRST", "").replace("SECOND", "")

    run = run_and_replay(script, source, "double", after="print(f'double {net.w * 2}')")

    assert count_losses(script) == 4  # one in each epoch, whoever told it
    assert (run.missing, run.mismatches, run.added) == ([], [], 4)
