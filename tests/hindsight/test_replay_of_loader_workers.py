"""Laws of replaying loops over a data loader with worker processes: they end, and every batch is the recorded one."""

from __future__ import annotations

from pathlib import Path

import pytest

import relive
from tests.conftest import Script

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

# Every random generator is drawn from in the worker processes, and in the training process between batches.
HEAD = """
    import random
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Noisy(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, at):
            return torch.tensor([at + np.random.rand(), at + random.random()]) + torch.rand(2, dtype=torch.double)

    def start(worker):
        np.random.seed(torch.initial_seed() % 2**32 + worker)
        random.seed(worker)

    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    net = torch.nn.Linear(2, 1).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    loader = DataLoader(Noisy(), batch_size=3, shuffle=True, num_workers=2, {options})

    def learn(x):
        optimizer.zero_grad()
        loss = torch.nn.functional.dropout(net(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()
"""
VERBS = """
    import relive
    with relive.checkpointing(net=net, optimizer=optimizer, every=1):
        for epoch in relive.loop("epoch", range(4)):
            for x in relive.loop("step", loader):
                loss = learn(x)
                relive.log("loss", loss)
                {probe}
"""
HANDS_FREE = """
    for epoch in range(4):
        for step, x in enumerate(loader):
            loss = learn(x)
            {probe}
        print(f"epoch {{epoch}} loss: {{loss}}")
"""
OPTIONS = {
    "plain": "",
    "seeded": "worker_init_fn=start, generator=torch.Generator().manual_seed(7)",
    "persistent": "worker_init_fn=start, persistent_workers=True",
}


def record(script: Script, source: str, home: Path) -> None:
    script.write(source)
    env = {"RELIVE_EVERY": "1", "RELIVE_HOME": str(home)}
    if "relive.loop" in source:
        script(None, env=env)
    else:
        script.relive("run", "train.py", env=env)


def probes(home: Path, epochs: tuple[int, ...]) -> list[float]:
    table = relive.dataframe("probe", home=home)
    return table[table["epoch"].isin(epochs)]["probe"].tolist()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("loop", [VERBS, HANDS_FREE], ids=["verbs", "handsfree"])
def test_a_question_about_each_batch_gets_the_recorded_batches(
    script: Script, tmp_path: Path, loop: str, options: str
) -> None:
    head = HEAD.format(options=options)
    log = "relive.log('probe', x.sum().item() + loss)" if loop is VERBS else "print('probe:', x.sum().item() + loss)"
    record(script, head + loop.format(probe="pass"), script.home)
    record(script, head + loop.format(probe=log), tmp_path / "reference")

    last = relive.replay("probe", where="epoch = 3", workers=1, home=script.home)
    found_last = probes(script.home, (3,))
    rest = relive.replay("probe", workers=2, again=True, home=script.home)

    assert [(run.missing, run.mismatches) for run in (*last.runs, *rest.runs)] == [([], [])] * 2
    assert found_last == probes(tmp_path / "reference", (3,))
    assert probes(script.home, (0, 1, 2, 3)) == probes(tmp_path / "reference", (0, 1, 2, 3))
    if "persistent" not in options:  # those are planned from the start
        assert "from the start" not in "".join(last.runs[0].notes)
