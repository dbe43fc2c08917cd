"""Laws of loader iterators: their position is restored, if only the sampler determines the next batch."""

from __future__ import annotations

from pathlib import Path

import pytest

import relive
from relive.hindsight import Question, ReplaySession, plan_replay
from relive.store import Home
from relive.store.journal import parse_run
from relive.store.journal.line_schema import CheckpointTaken, lines_of
from tests.conftest import Script
from tests.handsfree.styles import values

pytestmark = pytest.mark.long

HEAD = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(4)
    data = TensorDataset(torch.randn(20, 3))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def learn(x):
        optimizer.zero_grad()
        loss = (net(x + torch.randn(1)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss
"""
REBOUND = """
    def fit():
        batches = iter(loader)
        for step in range(13):
            try:
                (x,) = next(batches)
            except StopIteration:
                batches = iter(loader)
                (x,) = next(batches)
            loss = learn(x)
            # probe
    fit()
"""
HELD = """
    class Endless:
        def __init__(self, loader):
            self.loader = loader
            self.batches = iter(loader)

        def next(self):
            try:
                return next(self.batches)
            except StopIteration:
                self.batches = iter(self.loader)
                return next(self.batches)

    endless = Endless(loader)
    for step in range(13):
        (x,) = endless.next()
        loss = learn(x)
        # probe
"""
OWN_GENERATOR = HEAD.replace("shuffle=True)", "shuffle=True, generator=torch.Generator().manual_seed(1))") + REBOUND
OTHER_LOADER = REBOUND.replace("iter(loader)", "iter(DataLoader(data, batch_size=4, shuffle=True))", 1)


@pytest.mark.parametrize(
    "step",
    [
        3,
        12,
    ],
)
@pytest.mark.parametrize("source", [HEAD + REBOUND, HEAD + HELD, OWN_GENERATOR], ids=["rebound", "held", "generator"])
def test_a_replayed_step_gets_the_same_batch(source: str, step: int, script: Script):
    script.write(source)
    done = script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(source.replace("# probe", "print('probe:', float(x.double().sum() + loss.double()))"))
    reference = script.project.parent / "reference"
    script.relive("run", "train.py", env={"RELIVE_HOME": str(reference)})
    with ReplaySession(Home(script.home)) as session:
        plan = plan_replay(session, Question(("probe",), f"step = {step}", workers=1))
        (case,) = plan.cases
    (answer,) = relive.replay("probe", where=f"step = {step}", workers=1, home=script.home).runs

    assert "state-left-out" not in done.stderr
    assert (case.plan.resume, case.plan.iterations) == ("resume", 1)
    assert not answer.missing
    assert values(script.home, "probe") == [one for one in values(reference, "probe") if one[1] == (step,)]


def test_an_iterator_over_another_loader_is_not_confused_with_the_captured_one(script: Script):
    reference = asked(script, HEAD + OTHER_LOADER)
    relive.replay("probe", where="step = 12", workers=1, home=script.home)

    assert set(values(script.home, "probe")) <= set(values(reference, "probe"))


def test_an_iterator_whose_sampler_is_not_repeatable_is_named_and_no_wrong_value_is_given(script: Script):
    own = "sampler=type('Own', (torch.utils.data.RandomSampler,), {})(data))"
    reference = asked(script, HEAD.replace("shuffle=True)", own) + HELD)
    relive.replay("probe", where="step = 3", workers=1, home=script.home)
    (run,) = (script.home / "runs").iterdir()
    lines = [line for journal in parse_run(Home(script.home), run.name) for line in journal.lines]
    unknown = [name for line in lines_of(CheckpointTaken, lines) for name in line.unknown or ()]

    assert any(name.startswith("endless.batches: ") for name in unknown)
    assert set(values(script.home, "probe")) <= set(values(reference, "probe"))


def asked(script: Script, source: str) -> Path:
    """Runs a script and writes a probe into it; returns the home of a run that had the probe from the beginning."""
    script.write(source)
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(source.replace("# probe", "print('probe:', float(x.double().sum()))"))
    reference = script.project.parent / "reference"
    script.relive("run", "train.py", env={"RELIVE_HOME": str(reference)})
    return reference
