"""Hands-free under torchrun: each rank runs the script, and together they are one run."""

from __future__ import annotations

import pytest

import relive
from relive.store import Home, Index
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
