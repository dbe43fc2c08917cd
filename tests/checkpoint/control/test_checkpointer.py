"""Laws of checkpoints while a run records: when they are taken, and that no fault damages them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive
from relive.checkpoint.control.checkpointer import Checkpointer, LoopWatch
from relive.checkpoint.io.capture import Capture
from relive.checkpoint.io.checkpoint_writer import CheckpointWriter
from relive.errors import Damaged, NotFound, ReliveWarning
from relive.store import Home
from relive.store.chunks import CheckpointRow, Chunks, Packs, list_kept_checkpoints, record_restore, restore_speed
from relive.store.journal import parse_run
from relive.store.journal.line_schema import CheckpointTaken, lines_of

# A training without torch: the state after epoch n is n everywhere.
TRAIN = """
import sys, time
import numpy as np
import relive

start = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0  # so that runs of one home share nothing
state, epochs, pause = np.full(int(sys.argv[1]) // 8, start), int(sys.argv[2]), float(sys.argv[3])
how = eval(sys.argv[4]) if len(sys.argv) > 4 else {}
with relive.checkpointing(state=state, **how):
    for epoch in relive.loop("epoch", range(epochs)):
        for step in relive.loop("step", range(2)):
            time.sleep(pause)
            state += 0.5
        relive.log("mean", float(state.mean()))
"""


def rows_of(home: Path) -> list[CheckpointRow]:
    place = Home(home)
    (run,) = place.run_ids()
    return list_kept_checkpoints(place.run_folder(run), parse_run(place, run))


def places(home: Path) -> list[str]:
    return [row.where for row in rows_of(home)]


def test_cheap_checkpoints_are_taken_in_every_epoch(script: Any) -> None:
    done = script(TRAIN, "8000", "4", "0.1", "dict(overhead=0.9)")

    assert {row.at["epoch"] for row in rows_of(done.home) if row.at} >= {1, 2, 3}
    assert places(done.home)[-1] == "end of epoch"


def test_of_checkpoints_that_cost_too_much_only_the_end_is_taken(script: Any) -> None:
    done = script(TRAIN, "80000000", "4", "0.01")

    assert places(done.home) == ["end of epoch"]


def test_the_overhead_setting_limits_what_checkpoints_cost(script: Any) -> None:
    done = script(TRAIN, "8000", "4", "0.1", env={"RELIVE_OVERHEAD": "0.000001"})

    assert places(done.home) == ["end of epoch"]


def test_the_overhead_argument_takes_precedence_over_the_setting(script: Any) -> None:
    done = script(TRAIN, "8000", "4", "0.1", "dict(overhead=0.5)", env={"RELIVE_OVERHEAD": "0.000001"})

    assert len(places(done.home)) > 3


def test_every_takes_a_checkpoint_each_n_iterations(script: Any) -> None:
    done = script(TRAIN, "8000", "6", "0", "dict(every=3)")

    ends = [row.at["epoch"] for row in rows_of(done.home) if row.place == "iteration"]
    assert ends == [2, 5]


def test_a_loop_over_a_list_shows_its_items_and_is_restored_by_them(script: Any) -> None:
    done = script(
        """
        import numpy as np
        import relive
        state = np.zeros(10)
        with relive.checkpointing(state=state, every=1):
            for fold in relive.loop("fold", ["red", "green", 7]):
                state += 1
        """
    )

    assert places(done.home) == ["fold=red", "fold=green", "fold=7", "end of fold"]
    state = np.zeros(10)
    relive.restore("last", into={"state": state}, home=done.home, fold="green")
    assert state.tolist() == [2.0] * 10
    assert "fold=green" in script.relive("checkpoints", "last").stdout


class Lines:
    """Collects journal lines."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def __call__(self, kind: str, loop: int, iteration: int, /, **content: Any) -> None:
        self.written.append({"kind": kind, "iteration": iteration, **content})


class SlowWriter(CheckpointWriter):
    """Waits for `may_write` before it writes."""

    may_write = threading.Event()

    def write(self, captured: Any, on_written: Any) -> None:
        self.may_write.wait()
        super().write(captured, on_written)


def checkpointer(
    folder: Path, writer: type[CheckpointWriter] = CheckpointWriter, **how: Any
) -> tuple[Checkpointer, Lines]:
    lines = Lines()
    made = writer(Packs(folder / "packs"), Chunks(folder))
    return Checkpointer({"state": np.ones(1000)}, made, lines, overhead=0.9, every=None, **how), lines


def run_iteration(watch: LoopWatch, iteration: int) -> None:
    watch.begin_iteration(iteration, None)
    time.sleep(0.02)
    watch.end_iteration(iteration, None)


def test_a_deeper_loop_does_not_end_the_watch_of_nested_loops(tmp_path: Path) -> None:
    taken, _ = checkpointer(tmp_path)
    main, nested = taken.enter("epoch", 1), taken.enter("step", 2)
    deeper = taken.enter("part", 3)
    assert main is not None
    assert nested is not None
    nested.end(0, None, exhausted=True)

    assert deeper is None
    assert taken.enter("step", 4) is not None


def test_while_the_writer_is_busy_checkpoints_are_left_out_and_training_goes_on(tmp_path: Path) -> None:
    SlowWriter.may_write.clear()
    keeper, lines = checkpointer(tmp_path, SlowWriter)
    keeper.ledger.overhead = 1000.0
    watch = keeper.enter("epoch", 1)
    assert watch is not None
    for iteration in range(5):  # would hang if it waited for the writer
        run_iteration(watch, iteration)
    SlowWriter.may_write.set()
    keeper.close()
    keeper.ledger.measured_s[:] = [0.0]  # forget that this test made it slow
    run_iteration(watch, 5)
    keeper.close()

    assert [line["iteration"] for line in lines.written if line["kind"] is CheckpointTaken] == [0, 5]


def test_the_slow_down_of_iterations_is_charged_to_the_checkpoint(tmp_path: Path) -> None:
    keeper, _ = checkpointer(tmp_path)
    watch = keeper.enter("epoch", 1)
    assert watch is not None
    keeper.ledger.overhead = 0.0  # none is taken
    for iteration in range(5):
        run_iteration(watch, iteration)
    keeper.ledger.overhead = 0.9
    run_iteration(watch, 5)
    keeper._writer.wait()
    keeper._charged_s, charged = 0.01, keeper.ledger.spent_s
    keeper._slow_down.quiet_s.extend([0.02] * 15)  # however loaded the machine was
    watch.begin_iteration(6, None)
    keeper._was_writing, keeper._wrote_s = True, 0.5
    time.sleep(0.5)
    watch.end_iteration(6, None)

    assert keeper.ledger.spent_s - charged > 0.3


def test_memory_is_reserved_before_the_first_checkpoint(tmp_path: Path) -> None:
    keeper, _ = checkpointer(tmp_path)
    keeper.ledger.overhead = 0.0
    watch = keeper.enter("epoch", 1)
    assert watch is not None
    run_iteration(watch, 0)
    deadline = time.monotonic() + 60
    while len(keeper._capture._arena.slice(0, 1 << 20)) < 8000 and time.monotonic() < deadline:
        time.sleep(0.01)

    assert len(keeper._capture._arena.slice(0, 1 << 20)) >= 8000


def test_restores_are_timed_for_the_controller(tmp_path: Path) -> None:
    state = np.ones(1_000_000)
    packs, chunks = Packs(tmp_path / "packs"), Chunks(tmp_path)
    done: list[Any] = []
    writer = CheckpointWriter(packs, chunks)
    writer.write(Capture({"state": state}).take({}), done.append)
    assert writer.restore_speed() is None
    from relive.checkpoint.io.checkpoint_reader import open_checkpoint

    open_checkpoint(done[0].manifest, chunks, packs).restore({"state": state}, random=False)
    keeper, _ = checkpointer(tmp_path)

    assert keeper.ledger.restore_bytes_per_s == writer.restore_speed() is not None
    record_restore(packs.folder, 10, 1.0)
    assert restore_speed(packs.folder) == writer.restore_speed(), "small restores are not measured"
    (packs.folder / "restores").write_text("junk")
    assert restore_speed(packs.folder) is None


def test_a_forked_child_takes_no_checkpoints(script: Any) -> None:
    done = script(
        """
        import os
        import numpy as np
        import relive
        state = np.zeros(1000)
        with relive.checkpointing(state=state, every=1):
            for epoch in relive.loop("epoch", range(4)):
                state += 1
                if epoch == 1:
                    child = os.fork()
                if epoch > 1:
                    relive.log("here", child == 0)
        if child:
            os.waitpid(child, 0)
        """
    )

    place = Home(done.home)
    (run,) = place.run_ids()
    journals = parse_run(place, run)
    assert len(journals) == 2
    counts = [len(lines_of(CheckpointTaken, journal.lines)) for journal in journals]
    assert counts == [5, 0]


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_whole_checkpoints_only(script: Any) -> None:
    script.write(TRAIN)
    chance = random.Random()
    seen = 0
    for attempt in range(5):
        before = len(Packs(Home(script.home).packs).names())
        process = script.start(None, "4000000", "100000", "0.001", "dict(every=1)", f"{attempt}e6")
        deadline = time.monotonic() + 60
        while len(Packs(Home(script.home).packs).names()) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

        place = Home(script.home)
        for run in place.run_ids():
            for row in list_kept_checkpoints(place.run_folder(run), parse_run(place, run)):
                state = np.zeros(500_000)
                relive.restore(run, into={"state": state}, home=script.home, epoch=row.at["epoch"])
                assert (state % 1e6 == row.at["epoch"] + 1).all()
                seen += 1
        for name in Packs(place.packs).names():
            assert Packs(place.packs).pieces(name), "a pack with a name is whole"

    assert seen >= 5


def test_the_state_after_a_skipblock_is_captured_and_restored(script: Any) -> None:
    done = script(
        """
        import time
        import numpy as np
        import relive
        state = np.zeros(1000)
        block = relive.skipblock("train")
        if block.step_into():
            for _ in range(3):
                state += 1
                time.sleep(0.1)
            best = 0.5
        block.end(state)
        print(best)
        """
    )

    (row,) = rows_of(done.home)
    assert row.name == "train"
    state = np.zeros(1000)
    checkpoint = relive.restore("last", into={"0": state}, home=done.home)
    assert (state == 3).all()
    assert checkpoint.variables()["best"] == 0.5


def test_a_disk_that_is_full_costs_checkpoints_and_nothing_else(script: Any) -> None:
    done = script(
        """
        import resource, signal, sys, time
        import numpy as np
        import relive
        chance = np.random.default_rng(0)
        state = chance.random(100_000)
        with relive.checkpointing(state=state, every=1):
            for epoch in relive.loop("epoch", range(4)):
                if epoch == 2:  # from now on no file may grow beyond 700 kB, as on a full disk
                    resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))
                state += chance.random(100_000)
                relive.log("mean", float(state.mean()))
        print("trained")
        """
    )

    assert done.stdout == "trained\n"
    assert done.stderr.count("[checkpoint-lost] a checkpoint could not be written") == 1
    kept = [row.at.get("epoch") for row in rows_of(done.home)]
    assert kept in ([0], [0, 1]), "the checkpoint of epoch 1 may be written when the disk is full already"
    assert len(relive.dataframe("mean", home=done.home)) == 4, "values are recorded to the end"
    assert not list((done.home / "chunks/packs").glob(".*.partial"))


def _damage(home: Path, row: CheckpointRow) -> None:
    place = Home(home)
    pack = Packs(place.packs).names()[[r.manifest for r in rows_of(home)].index(row.manifest)]
    path = place.packs / pack
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_a_damaged_checkpoint_is_named_and_an_earlier_one_can_be_restored(script: Any) -> None:
    done = script(
        """
        import numpy as np
        import relive
        chance = np.random.default_rng(0)
        state = np.zeros(10_000)
        with relive.checkpointing(state=state, every=1):
            for epoch in relive.loop("epoch", range(3)):
                state[:] = chance.random(10_000)
                state[0] = epoch
        """
    )
    rows = rows_of(done.home)
    _damage(done.home, rows[2])
    state = np.zeros(10_000)

    with pytest.raises(
        Damaged, match=r"at epoch=2 can't be read: pack .* is damaged.*try an earlier one: epoch=1, epoch=0"
    ):
        relive.restore("last", into={"state": state}, home=done.home, epoch=2)
    with pytest.raises(NotFound):
        relive.restore("last", into={"other": state}, home=done.home)
    from relive.record.process.user_warnings import reset_warnings

    reset_warnings()
    with pytest.warns(ReliveWarning, match=r"\[checkpoint-damaged\] end of epoch: pack"):
        relive.restore("last", into={"state": state}, home=done.home)
    assert state[0] == 1


def test_a_restore_holds_off_garbage_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relive.checkpoint.io.checkpoint_reader import open_checkpoint
    from relive.errors import ReliveError

    state = np.ones(1000)
    packs, chunks = Packs(tmp_path / "packs"), Chunks(tmp_path)
    done: list[Any] = []
    CheckpointWriter(packs, chunks).write(Capture({"state": state}).take({}), done.append)
    tried: list[str] = []

    def read(packs: Packs, pending: Any) -> None:
        with pytest.raises(ReliveError, match="try again later"), packs.exclusive_lock(patience_s=0.05):
            pass
        tried.append("held off")

    monkeypatch.setattr("relive.checkpoint.io.checkpoint_reader.read_pieces", read)
    open_checkpoint(done[0].manifest, chunks, packs).restore({"state": state}, random=False)

    assert tried == ["held off"]
