"""Laws of gradients: they are part of the state if they are loop-carried, and only then."""

from __future__ import annotations

import ast

import pytest

import relive
from relive.checkpoint.io import open_checkpoint, open_packs
from relive.checkpoint.state.gradients import _are_loop_carried, _gradient_uses, _GradientPosition
from relive.hindsight import Question, ReplaySession, plan_replay
from relive.store import Home
from relive.store.catalog import Index
from relive.store.chunks import Chunks
from tests.conftest import Script
from tests.handsfree.styles import values

ACCUMULATED = """
    import torch

    torch.manual_seed(2)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loose = torch.nn.Parameter(torch.ones(1))
    other = torch.optim.SGD([loose], lr=0.1)
    for epoch in range(5):
        optimizer.zero_grad()
        other.zero_grad()
        for batch in range(3):
            loss = ((net(torch.randn(8, 3)) - loose) ** 2).mean()
            loss.backward()
        optimizer.step()
        other.step()
        # probe
"""
ACROSS_ITERATIONS = """
    import torch

    torch.manual_seed(2)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for step in range(8):
        loss = (net(torch.randn(8, 3)) ** 2).mean()
        loss.backward()
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        # probe
"""
STEPPED = """            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
PROBE = "print('probe:', sum(float(p.double().sum()) for g in optimizer.param_groups for p in g['params']))"


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "where"), [(ACCUMULATED, "epoch = 4"), (ACROSS_ITERATIONS, "step = 5")], ids=["inner loop", "iterations"]
)
def test_a_replayed_step_has_the_same_gradients(source: str, where: str, script: Script):
    script.write(source)
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(source.replace("# probe", PROBE))
    reference = script.project.parent / "reference"
    script.relive("run", "train.py", env={"RELIVE_HOME": str(reference)})
    with ReplaySession(Home(script.home)) as session:
        plan = plan_replay(session, Question(("probe",), where, workers=1))
        (case,) = plan.cases
    (answer,) = relive.replay("probe", where=where, workers=1, home=script.home).runs
    name, number = where.split(" = ")

    assert not answer.missing
    assert case.plan.iterations == 1
    assert values(script.home, "probe") == [
        one for one in values(reference, "probe") if one[:2] == ((name,), (int(number),))
    ]


@pytest.mark.long
def test_gradients_that_a_later_probe_reads_are_computed_again(script: Script):
    source = ACCUMULATED.replace("            loss.backward()\n", STEPPED)
    script.write(source)
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(source.replace("# probe", "print('grad_norm:', float(net.weight.grad.norm()))"))
    reference = script.project.parent / "reference"
    script.relive("run", "train.py", env={"RELIVE_HOME": str(reference)})
    relive.replay("grad_norm", where="epoch = 3", workers=1, home=script.home)

    assert values(script.home, "grad_norm") == [one for one in values(reference, "grad_norm") if one[1] == (3,)]


@pytest.mark.long
def test_gradients_that_each_iteration_computes_are_not_captured(script: Script):
    script.write(ACCUMULATED.replace("        for batch in range(3):\n", "        if True:\n"))
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    home = Home(script.home)
    index = Index(home)
    (rows,) = index.checkpoints(index.runs()).values()
    index.close()
    kept = {
        row.place: open_checkpoint(row.manifest, Chunks(home.chunks), open_packs(home)).changes.has_gradients
        for row in rows
    }

    assert kept == {"iteration": False, "end": True}  # code after the loop may read them


PLAIN = "for b in loader:\n    opt.zero_grad()\n    loss(b).backward()\n    opt.step()\n"
LOOP_CARRIED = {
    "for e in r:\n    opt.zero_grad()\n    for b in loader:\n        loss(b).backward()\n    opt.step()\n",
    "for b in loader:\n    loss(b).backward()\n    if n % 4 == 0:\n        opt.step()\n        opt.zero_grad()\n",
    PLAIN + "def norm(m):\n    return sum(p.grad.norm() for p in m.parameters())\n",
    "def one(b):\n    loss(b).backward()\ndef all():\n    for b in loader:\n        opt.zero_grad()\n        one(b)\n",
}
WITHIN_ITERATION = {
    PLAIN,
    PLAIN.replace("    opt.step()\n", "    clip_grad_norm_(m.parameters(), 1.0)\n    opt.step()\n"),
    "for b in loader:\n    for o in opts:\n        o.zero_grad()\n    loss(b).backward()\n",
    "for b in loader:\n    opt.zero_grad()\n    if amp:\n        s.scale(loss(b)).backward()\n    else:\n"
    "        loss(b).backward()\n    opt.step()\n",
    "class Own(Optimizer):\n    def step(self):\n        for p in self.ps:\n            p.data.add_(p.grad)\n" + PLAIN,
    "def closure():\n    opt.zero_grad()\n    loss(b).backward()\nfor b in r:\n    opt.step(closure)\n",
}


@pytest.mark.parametrize("source", sorted(LOOP_CARRIED))
def test_loop_carried_gradients_are_recognized_in_the_source(source: str):
    assert _are_loop_carried(list(_gradient_uses(ast.parse(source), _GradientPosition())))


@pytest.mark.parametrize("source", sorted(WITHIN_ITERATION))
def test_gradients_of_one_iteration_are_recognized_in_the_source(source: str):
    assert not _are_loop_carried(list(_gradient_uses(ast.parse(source), _GradientPosition())))
