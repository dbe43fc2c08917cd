"""Laws of moments: ranks take checkpoints at the same ones, rank 0 decides, and nobody waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint.control.rank_schedule import (
    FILE,
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


def test_what_rank_0_decides_ahead_is_due_on_all_ranks_once(ranks: Any) -> None:
    leading, following = ranks
    assert (type(leading), type(following)) == (LeaderSchedule, FollowerSchedule)

    leading.look_ahead(BLOCK, 3, yes)

    for rank in ranks:
        assert [rank.is_due(BLOCK, iteration, no) for iteration in (2, 3, 4)] == [False, True, False]


def test_what_other_ranks_think_does_not_count(ranks: Any) -> None:
    leading, following = ranks

    following.look_ahead(BLOCK, 3, yes)
    leading.look_ahead(BLOCK, 3, no)

    assert not any(rank.is_due(BLOCK, 3, yes) for rank in ranks)


def test_in_the_first_iteration_each_decides_for_itself(ranks: Any) -> None:
    assert [rank.is_due(BLOCK, 0, worth) for rank in ranks for worth in (yes, no)] == [True, False] * 2


def test_a_place_that_is_not_passed_in_every_iteration_is_due_when_it_is(ranks: Any) -> None:
    leading, _ = ranks

    leading.look_ahead("val: loop", 5, yes)
    leading.look_ahead("val: loop", 6, yes)  # it is agreed on already

    assert [rank.is_due("val: loop", 9, no) for rank in ranks] == [True, True]
    assert [rank.is_due("val: loop", 10, no) for rank in ranks] == [False, False]


def test_a_rank_that_is_a_little_behind_misses_nothing(ranks: Any) -> None:
    leading, following = ranks

    leading.look_ahead(BLOCK, 2, yes)
    assert leading.is_due(BLOCK, 2, no)
    leading.look_ahead(BLOCK, 3, yes)

    assert [following.is_due(BLOCK, iteration, no) for iteration in (2, 3, 4)] == [True, True, False]


def test_what_was_to_come_in_a_loop_that_is_over_is_forgotten(ranks: Any) -> None:
    leading, following = ranks
    leading.look_ahead(BLOCK, 7, yes)
    assert following.is_awaited(BLOCK, 7)

    for rank in ranks:
        rank.begin_anew()
    leading.look_ahead(BLOCK, 1, yes)

    assert [rank.is_due(BLOCK, 1, no) for rank in ranks] == [True, True]
    assert not any(rank.is_awaited(BLOCK, 7) for rank in ranks)


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path, ranks: Any) -> None:
    _, following = ranks
    with (tmp_path / FILE).open("ab", buffering=0) as file:
        file.write(b"12 step:")
        assert not following.is_awaited(BLOCK, 12)
        file.write(b" loop\n")

    assert following.is_awaited(BLOCK, 12)


def test_where_no_file_can_be_made_each_rank_is_on_its_own(tmp_path: Path) -> None:
    assert isinstance(agree_on_schedule(tmp_path / "missing", 1), SingleRankSchedule)


# Ranks of which one has the larger state, and would take fewer checkpoints if it decided alone.
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
        except (FileNotFoundError, ConnectionRefusedError):  # it is not there yet, or does not listen yet
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
def test_ranks_that_exchange_something_take_their_checkpoints_at_the_same_moments(script: Any) -> None:
    script.write(TRAIN)
    told = {"RELIVE_WORLD_SIZE": "2", "RELIVE_LAUNCH": "one"}
    processes = [script.start(None, env={**told, "RELIVE_RANK": str(rank)}) for rank in range(2)]
    for process in processes:
        assert process.communicate(timeout=60)[1] == ""

    home = Home(script.home)
    (run,) = home.run_ids()
    first, second = (moments_of(list_checkpoints(journal)) for journal in parse_run(home, run))
    told = [line.partition(" ") for line in (home.run_folder(run) / FILE).read_text().splitlines()]
    agreed = {(block.partition(":")[0], int(iteration)) for iteration, _, block in told}
    for own in (first, second):  # of the first iteration each rank thinks for itself, and the end is always kept
        assert own - agreed <= {("step", 0), ("epoch", 0), ("epoch", None)}
    assert first & second & agreed
    assert script.relive("doctor").returncode == 0


def moments_of(rows: list[CheckpointRow]) -> set[tuple[str, Any]]:
    return {(row.name, row.at.get("epoch")) for row in rows}
