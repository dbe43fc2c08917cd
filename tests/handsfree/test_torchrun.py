"""Hands-free under torchrun: each rank runs the script, and together they are one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index
from tests.conftest import Script

pytestmark = pytest.mark.slow

TRAIN = """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(16, 3)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    net = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = ((net(inputs) - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
        print(f"loss: {loss.item()}")
    dist.destroy_process_group()
"""
TORCHRUN = "from torch.distributed.run import main\nif __name__ == '__main__':\n    main()\n"


def test_ranks_that_torchrun_starts_are_one_run_hands_free(script: Script):
    script.write(TRAIN)
    done = script(
        TORCHRUN, "--standalone", "--nproc-per-node=2", "-m", "relive", "run", "train.py", name="torchrun.py",
        env={"OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    (entry,) = Index(Home(script.home)).runs()
    canonical = relive.dataframe("loss", home=script.home)
    everyone = relive.dataframe("loss", home=script.home, ranks="all")

    assert done.stdout.count("loss:") == 6  # both ranks print what they print
    assert (entry.record.world_size, entry.record.ranks, entry.record.outcome) == (2, (0, 1), "finished")
    assert canonical["epoch"].tolist() == [0, 1, 2]
    assert len(everyone) == 6


def test_a_statement_added_later_is_answered_for_each_rank(script: Script):
    def launch(home: str) -> None:
        script(
            TORCHRUN, "--standalone", "--nproc-per-node=2", "-m", "relive", "run", "train.py", name="torchrun.py",
            env={"OMP_NUM_THREADS": "1", "RELIVE_HOME": home}, timeout=300,
        )  # fmt: skip

    def rows(home: Path) -> list[tuple[Any, ...]]:
        table = relive.dataframe("x", home=home, ranks="all").dropna(subset="x")
        return list(table[["rank", "epoch", "x"]].itertuples(index=False, name=None))

    script.write(TRAIN)
    launch(str(script.home))
    with_question = TRAIN.replace("import torch\n", "import relive, torch\n", 1).replace(
        'print(f"loss', 'relive.log("x", loss.item() + net.module.weight.sum().item())\n        print(f"loss'
    )
    script.write(with_question)
    (run,) = relive.replay("x", home=script.home, workers=2).runs
    reference = script.project.parent / "reference"
    launch(str(reference))

    assert (run.mismatches, run.missing, run.is_verified) == ([], [], True)
    assert len(rows(script.home)) == 6
    assert rows(script.home) == rows(reference)
