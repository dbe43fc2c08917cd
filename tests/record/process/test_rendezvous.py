"""Laws of launches: the ranks of one launch share one run, rank 0 is canonical, and other launches stay out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index

TRAIN = """
import sys, relive
lr = relive.arg("lr", 0.1)
rank = int(sys.argv[1])
for epoch in relive.loop("epoch", range(2)):
    relive.log("loss", 100 * rank + epoch)
"""


def records(home: Path) -> list[Any]:
    index = Index(Home(home))
    found = [entry.record for entry in index.runs()]
    index.close()
    return found


def journals(home: Path) -> list[list[str]]:
    folders = [Home(home).run_folder(run) for run in Home(home).run_ids()]
    return sorted(sorted(path.name for path in folder.glob("*.slots")) for folder in folders)


def rows(home: Path, *columns: str, **how: Any) -> list[tuple[Any, ...]]:
    return list(relive.dataframe("loss", home=home, **how)[list(columns)].itertuples(index=False, name=None))


def launch(script, *ranks: int, **variables: str) -> None:
    """Runs `train.py` as these ranks in parallel; the values of variables may hold `{rank}`."""
    processes = [
        script.start(None, str(rank), env={key: value.format(rank=rank) for key, value in variables.items()})
        for rank in ranks
    ]
    for process in processes:
        out, said = process.communicate(timeout=60)
        assert (process.returncode, out, said) == (0, "", "")


SLURM = {"SLURM_PROCID": "{rank}", "SLURM_NTASKS": "2", "SLURM_LOCALID": "{rank}", "SLURM_STEP_ID": "0"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}"}
LAUNCHERS = [
    {**SLURM, "SLURM_JOB_ID": "41"},
    {**OPEN_MPI, "PMIX_NAMESPACE": "prterun-1"},
    {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "PMI_JOBID": "7"},
    {"RELIVE_RANK": "{rank}", "RELIVE_WORLD_SIZE": "2"},
    {**OPEN_MPI, "RELIVE_LAUNCH": "mine"},
]


@pytest.mark.long
@pytest.mark.parametrize("variables", LAUNCHERS, ids=["slurm", "openmpi", "mpich", "own", "named"])
def test_the_ranks_of_a_launch_are_one_run_and_rank_0_is_canonical(script, variables: dict[str, str]) -> None:
    script.write(TRAIN)

    launch(script, 0, 1, **variables)

    (record,) = records(script.home)
    assert (record.world_size, record.ranks, record.outcome) == (2, (0, 1), "finished")
    assert journals(script.home) == [["0.slots", "1.slots"]]
    assert rows(script.home, "epoch", "loss") == [(0, 0), (1, 1)]
    assert rows(script.home, "rank", "epoch", "loss", ranks="all") == [(0, 0, 0), (0, 1, 1), (1, 0, 100), (1, 1, 101)]
    assert script.relive("doctor").returncode == 0


def test_two_launches_are_two_runs(script) -> None:
    script.write(TRAIN)

    launch(script, 0, 1, **SLURM, SLURM_JOB_ID="41")
    launch(script, 0, 1, **SLURM, SLURM_JOB_ID="42")
    launch(script, 0, 1, **SLURM, SLURM_JOB_ID="42")  # requeued under its old number

    assert journals(script.home) == [["0.slots", "1.slots"]] * 3


def test_the_order_in_which_ranks_start_does_not_matter(script) -> None:
    script.write(TRAIN)

    launch(script, 1, **SLURM, SLURM_JOB_ID="41")
    launch(script, 0, **SLURM, SLURM_JOB_ID="41")

    assert journals(script.home) == [["0.slots", "1.slots"]]
    assert rows(script.home, "epoch", "loss") == [(0, 0), (1, 1)]


def test_ranks_share_each_of_several_runs_even_if_one_is_far_ahead(script) -> None:
    script.write(
        """
        import sys, relive
        for trial in range(3):
            with relive.run(f"trial {trial}"):
                relive.log("loss", 10 * trial + int(sys.argv[1]))
        """
    )

    launch(script, 0, **SLURM, SLURM_JOB_ID="41")
    launch(script, 1, **SLURM, SLURM_JOB_ID="41")

    assert journals(script.home) == [["0.slots", "1.slots"]] * 3
    assert rows(script.home, "loss") == [(0,), (10,), (20,)]
    assert rows(script.home, "rank", "loss", ranks="all") == [(0, 0), (1, 1), (0, 10), (1, 11), (0, 20), (1, 21)]


def test_ranks_of_an_unidentified_launch_are_separate_runs_and_warn(script) -> None:
    done = script(TRAIN, "1", env={key: value.format(rank=1) for key, value in OPEN_MPI.items()})

    assert "[launch-unknown]" in done.stderr
    assert "set RELIVE_LAUNCH" in done.stderr
    assert len(records(script.home)) == 1


def test_a_rank_that_dies_does_not_hurt_the_run(script) -> None:
    script.write(TRAIN + "if rank == 1:\n    import os\n    os.kill(os.getpid(), 9)\n")

    victim = script.start(None, "1", env={**SLURM, "SLURM_PROCID": "1", "SLURM_JOB_ID": "41"})
    victim.communicate(timeout=60)
    launch(script, 0, **SLURM, SLURM_JOB_ID="41")

    (record,) = records(script.home)
    assert record.outcome == "finished"
    assert rows(script.home, "rank", "loss", ranks="all") == [(0, 0), (0, 1), (1, 100), (1, 101)]


@pytest.mark.long
@pytest.mark.parametrize("launches", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_torchrun_gives_one_run_each_time(script, launches: int) -> None:
    script.write(
        """
        import torch.distributed as dist, relive
        dist.init_process_group("gloo")
        for epoch in relive.loop("epoch", range(2)):
            relive.log("loss", 100 * dist.get_rank() + epoch)
            dist.barrier()
        dist.destroy_process_group()
        """
    )
    torchrun = "from torch.distributed.run import main\nif __name__ == '__main__':\n    main()\n"
    options = ("--standalone", "--nproc-per-node=2", "train.py")

    for _ in range(launches):
        done = script(torchrun, *options, name="torchrun.py", env={"OMP_NUM_THREADS": "1"})
        assert done.stdout == ""

    assert [(r.world_size, r.ranks, r.outcome) for r in records(script.home)] == [(2, (0, 1), "finished")] * launches
    assert journals(script.home) == [["0.slots", "1.slots"]] * launches
    assert rows(script.home, "epoch", "loss") == [(0, 0), (1, 1)] * launches
    assert rows(script.home, "rank", "loss", ranks="all") == [(0, 0), (0, 1), (1, 100), (1, 101)] * launches


@pytest.mark.long
@pytest.mark.parametrize("parent", ["silent", "recording"])
def test_workers_that_join_a_process_group_by_themselves_are_ranks(script, parent: str) -> None:
    done = script(
        """
        import os, sys
        import torch.distributed as dist, torch.multiprocessing as mp
        def train(rank):
            import relive
            dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=rank, world_size=2)
            for epoch in relive.loop("epoch", range(2)):
                relive.log("loss", 100 * rank + epoch)
                dist.barrier()
            dist.destroy_process_group()
        if __name__ == "__main__":
            if sys.argv[1] == "recording":
                import relive
                relive.arg("lr", 0.1)
            mp.start_processes(train, nprocs=2, start_method="fork")
        """,
        parent,
        env={"OMP_NUM_THREADS": "1"},
    )

    (record,) = records(script.home)
    assert done.stdout == ""
    assert record.outcome == "finished"
    assert rows(script.home, "epoch", "loss") == [(0, 0), (1, 1)]
    assert rows(script.home, "rank", "loss", ranks="all") == [(0, 0), (0, 1), (1, 100), (1, 101)]
