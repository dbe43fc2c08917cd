"""Laws of the rank schedule: all ranks take the same checkpoints, rank 0 decides, and no rank waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint.control.rank_schedule import (
    SCHEDULE_FILE,
    FollowerSchedule,
    LeaderSchedule,
    SingleRankSchedule,
    agree_on_schedule,
)
from relive.store import Home
from relive.store.chunks import CheckpointRow, list_checkpoints
from relive.store.journal import parse_run

BLOCK = "step: loop"


def yes() -> bool:
    return True


def no() -> bool:
    return False


@pytest.fixture
def ranks(tmp_path: Path) -> Any:
    leading, following = agree_on_schedule(tmp_path, 0), agree_on_schedule(tmp_path, 1)
    yield leading, following
    leading.close()
    following.close()


def test_a_checkpoint_that_rank_0_decides_ahead_is_due_once_on_all_ranks(ranks: Any) -> None:
    leading, following = ranks
    assert (type(leading), type(following)) == (LeaderSchedule, FollowerSchedule)

    leading.decide_ahead(BLOCK, 3, yes)

    for rank in ranks:
        assert [rank.is_due(BLOCK, iteration, no) for iteration in (2, 3, 4)] == [False, True, False]


def test_decisions_of_other_ranks_do_not_count(ranks: Any) -> None:
    leading, following = ranks

    following.decide_ahead(BLOCK, 3, yes)
    leading.decide_ahead(BLOCK, 3, no)

    assert not any(rank.is_due(BLOCK, 3, yes) for rank in ranks)


def test_in_the_first_iteration_each_rank_decides_for_itself(ranks: Any) -> None:
    assert [rank.is_due(BLOCK, 0, is_worth_it) for rank in ranks for is_worth_it in (yes, no)] == [True, False] * 2


def test_a_block_that_is_not_executed_in_every_iteration_is_due_at_its_next_execution(ranks: Any) -> None:
    leading, _ = ranks

    leading.decide_ahead("val: loop", 5, yes)
    leading.decide_ahead("val: loop", 6, yes)  # it is agreed on already

    assert [rank.is_due("val: loop", 9, no) for rank in ranks] == [True, True]
    assert [rank.is_due("val: loop", 10, no) for rank in ranks] == [False, False]


def test_a_rank_that_is_behind_misses_no_checkpoint(ranks: Any) -> None:
    leading, following = ranks

    leading.decide_ahead(BLOCK, 2, yes)
    assert leading.is_due(BLOCK, 2, no)
    leading.decide_ahead(BLOCK, 3, yes)

    assert [following.is_due(BLOCK, iteration, no) for iteration in (2, 3, 4)] == [True, True, False]


def test_agreed_checkpoints_are_forgotten_when_the_main_loop_ends(ranks: Any) -> None:
    leading, following = ranks
    leading.decide_ahead(BLOCK, 7, yes)
    assert following.is_agreed(BLOCK, 7)

    for rank in ranks:
        rank.reset()
    leading.decide_ahead(BLOCK, 1, yes)

    assert [rank.is_due(BLOCK, 1, no) for rank in ranks] == [True, True]
    assert not any(rank.is_agreed(BLOCK, 7) for rank in ranks)


def test_a_half_written_line_is_read_when_it_is_complete(tmp_path: Path, ranks: Any) -> None:
    _, following = ranks
    with (tmp_path / SCHEDULE_FILE).open("ab", buffering=0) as file:
        file.write(b"12 step:")
        assert not following.is_agreed(BLOCK, 12)
        file.write(b" loop\n")

    assert following.is_agreed(BLOCK, 12)


def test_without_a_schedule_file_each_rank_decides_alone(tmp_path: Path) -> None:
    assert isinstance(agree_on_schedule(tmp_path / "missing", 1), SingleRankSchedule)


# Two ranks; the second has the larger state, and would take fewer checkpoints if it decided alone.
TRAIN = """
import os, time
from multiprocessing.connection import Client, Listener
import numpy as np
import relive
rank = int(os.environ["RELIVE_RANK"])
def meet():
    if rank == 0:
        return Listener("meet").accept()
    while True:
        try:
            return Client("meet")
        except (FileNotFoundError, ConnectionRefusedError):  # it does not exist or listen yet
            time.sleep(0.01)
other = meet()
state = np.zeros((10, 200_000)[rank])
with relive.checkpointing(state=state, overhead=0.9):
    for epoch in relive.loop("epoch", range(40)):
        for step in relive.loop("step", range(2)):
            time.sleep(0.01)
            state += 1
            other.send(step)
            other.recv()
"""


@pytest.mark.long
def test_ranks_that_exchange_data_take_the_same_checkpoints(script: Any) -> None:
    script.write(TRAIN)
    launch = {"RELIVE_WORLD_SIZE": "2", "RELIVE_LAUNCH": "one"}
    processes = [script.start(None, env={**launch, "RELIVE_RANK": str(rank)}) for rank in range(2)]
    for process in processes:
        assert process.communicate(timeout=60)[1] == ""

    home = Home(script.home)
    (run,) = home.run_ids()
    first, second = (positions_of(list_checkpoints(journal)) for journal in parse_run(home, run))
    decisions = [line.partition(" ") for line in (home.run_folder(run) / SCHEDULE_FILE).read_text().splitlines()]
    agreed = {(block.partition(":")[0], int(iteration)) for iteration, _, block in decisions}
    for own in (first, second):  # each rank decides alone in the first iteration, and the end is always captured
        assert own - agreed <= {("step", 0), ("epoch", 0), ("epoch", None)}
    assert first & second & agreed
    assert script.relive("doctor").returncode == 0


def positions_of(rows: list[CheckpointRow]) -> set[tuple[str, Any]]:
    return {(row.name, row.at.get("epoch")) for row in rows}
