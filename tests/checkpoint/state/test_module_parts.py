"""Laws of module parts: a layer with two references is one layer after a restore, too."""

from __future__ import annotations

import pytest

import relive
from tests.conftest import Script
from tests.handsfree.styles import values

pytestmark = pytest.mark.long

LISTED = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = []
            for at in range(2):
                layer = torch.nn.Linear(3, 3)
                setattr(self, f"layer{at}", layer)
                self.layers.append(layer)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(1)
    nets = [Net(), Net()]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    for epoch in range(4):
        for batch in range(2):
            for net, optimizer in zip(nets, optimizers):
                loss = (net(torch.randn(4, 3)) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            # probe inside
        # probe
"""
PROBE = "print('probe:', sum(float(p.double().sum()) for net in nets for p in net.parameters()))"


def test_layers_in_a_list_stay_the_layers_of_the_module(script: Script):
    script.write(LISTED)
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(LISTED.replace("# probe inside", "print('inside:', loss.item())").replace("# probe", PROBE))
    reference = script.project.parent / "reference"
    script.relive("run", "train.py", env={"RELIVE_HOME": str(reference)})
    (answer,) = relive.replay("probe", "inside", where="epoch = 3", workers=1, home=script.home).runs

    assert not answer.missing
    for name in ("probe", "inside"):
        expected = [one for one in values(reference, name) if one[1][0] == 3]
        assert values(script.home, name) == expected
