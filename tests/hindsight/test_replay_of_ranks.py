"""Laws of replaying ranks: all are replayed together, each from its own states, and each value goes to its rank."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.hindsight import Answer, Question, ReplaySession, plan_replay
from relive.store import Home
from relive.store.chunks import list_checkpoints
from relive.store.chunks.tombstones import drop_checkpoints
from relive.store.journal import parse_run

# Two ranks that need each other in every step, with random numbers of their own, and that count what they really do.
TRAIN = """
import os, random, sys, time
from multiprocessing.connection import Client, Listener
import relive

rank = int(os.environ["RELIVE_RANK"])
random.seed(100 + rank)
place = "127.0.0.1", int(os.environ["MASTER_PORT"])

def meet():
    if rank == 0:
        return Listener(place).accept()
    while True:
        try:
            return Client(place)
        except ConnectionRefusedError:
            time.sleep(0.01)

other = meet()

def mean(value):
    other.send(value)
    return (value + other.recv()) / 2

def did(what):
    with open(os.environ["DID"], "a") as file:
        file.write(f"{{what}}{{rank}}\\n")

net = [0.5 + rank]
{prefix}
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(5)):
        did("epoch")
        total = 0.0
        {first}
        for step in relive.loop("step", range(3)):
            did("step")
            net[0] = mean(net[0] * 0.9 + random.random())
            total += net[0] + rank
            {inside}
        relive.log("loss", total)
        {after}
relive.log("final", mean(total))
{suffix}
mean(0)
"""
PLACES = ("prefix", "first", "inside", "after", "suffix")


def train(**added: str) -> str:
    return TRAIN.format(**{**dict.fromkeys(PLACES, "pass"), **added})


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Together:
    """A project whose script runs as two ranks."""

    def __init__(self, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script = script
        self._did = tmp_path / "beside" / "did.lock"
        self._did.parent.mkdir()
        monkeypatch.setenv("DID", str(self._did))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def start(self, source: str, home: Path | None = None, **variables: str) -> list[Any]:
        self.script.write(source)
        environment = {
            **variables,
            "RELIVE_WORLD_SIZE": "2",
            "RELIVE_LAUNCH": os.urandom(4).hex(),
            "MASTER_PORT": free_port(),
        }
        environment["RELIVE_HOME"] = str(home or self.script.home)
        return [self.script.start(None, env={**environment, "RELIVE_RANK": str(rank)}) for rank in range(2)]

    def record(self, source: str, home: Path | None = None, *, codes: tuple[int, int] = (0, 0)) -> None:
        processes = self.start(source, home)
        errors = [process.communicate(timeout=60)[1] for process in processes]
        assert tuple(process.returncode for process in processes) == codes, errors
        self._did.unlink(missing_ok=True)

    def replay(self, source: str, name: str = "x", **how: Any) -> Answer:
        self.script.write(source)
        return relive.replay(name, home=self.script.home, **{"workers": 2, **how})

    def did(self) -> list[str]:
        return sorted(self._did.read_text().split()) if self._did.exists() else []

    def forget(self) -> None:
        self._did.unlink(missing_ok=True)

    def rows(self, name: str = "x", home: Path | None = None) -> list[tuple[Any, ...]]:
        table = relive.dataframe(name, home=home or self.script.home, ranks="all").dropna(subset=name)
        loops = [column for column in ("epoch", "step") if column in table]
        return list(table[["rank", *loops, name]].itertuples(index=False, name=None))

    def reference(self, source: str, name: str = "x") -> list[tuple[Any, ...]]:
        """The values of a run that has the statement from the start."""
        home = self.script.project.parent / "reference"
        self.record(source, home)
        return self.rows(name, home)


@pytest.fixture
def together(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Together:
    return Together(script, tmp_path, monkeypatch)


def both(*what: str, ranks: int = 2) -> list[str]:
    return sorted(f"{one}{rank}" for one in what for rank in range(ranks))


PROBES = {
    "prefix": ('relive.log("x", net[0] + mean(rank))', []),
    "suffix": ('relive.log("x", net[0] + total + mean(random.random()))', []),
    "after": ('relive.log("x", total + step + net[0])', ["epoch"] * 5),
    "inside": ('relive.log("x", net[0] + mean(rank * total))', [*["epoch"] * 5, *["step"] * 15]),
}


@pytest.mark.long
@pytest.mark.parametrize("where", PROBES)
def test_each_rank_gives_what_it_would_have_logged(together: Together, where: str) -> None:
    statement, work = PROBES[where]
    together.record(train())

    (run,) = together.replay(train(**{where: statement})).runs

    assert (run.mismatches, run.missing) == ([], [])
    # After a restore, `mean` reads a connection, which no checkpoint holds.
    assert run.is_verified or (where == "suffix" and "Connection is not in the checkpoints" in run.causes[0])
    assert together.did() == both(*work)
    rows = together.rows()
    assert {row[0] for row in rows} == {0, 1}
    assert rows == together.reference(train(**{where: statement}))


@pytest.mark.long
def test_selected_iterations_are_run_by_concurrent_groups_and_not_run_again(together: Together) -> None:
    together.record(train())
    source = train(inside='relive.log("x", net[0])')
    together.script.write(source)
    with ReplaySession(Home(together.script.home)) as session:
        plan = plan_replay(session, Question(("x",), "epoch in (1, 4)", workers=4))
        assert [len(case.plan.segments) for case in plan.cases] == [2]

    together.replay(source, where="epoch in (1, 4)", workers=4)

    assert together.did() == both(*["epoch"] * 2, *["step"] * 6)
    assert together.rows() == [row for row in together.reference(source) if row[1] in (1, 4)]
    together.forget()
    assert together.replay(source, where="epoch in (1, 4)").runs == []
    assert together.did() == []


@pytest.mark.long
def test_a_statement_that_only_one_rank_reaches_is_answered_once(together: Together) -> None:
    together.record(train())
    source = train(after='rank == 1 and relive.log("x", net[0] + epoch)')

    first, again = together.replay(source), together.replay(source)

    assert (first.added, again.runs) == (5, [])
    assert together.rows() == together.reference(source)


@pytest.mark.long
def test_states_of_one_rank_alone_are_not_used(together: Together) -> None:
    together.record(train())
    home = Home(together.script.home)
    (run,) = home.run_ids()
    rows = [row for own in parse_run(home, run) if own.journal.rank == 1 for row in list_checkpoints(own)]
    drop_checkpoints(home.run_folder(run), [row for row in rows if row.at.get("epoch", 9) >= 2])
    source = train(after='relive.log("x", net[0])')

    together.script.write(source)
    with ReplaySession(Home(together.script.home)) as session:
        plan = plan_replay(session, Question(("x",), "epoch = 4"))
        notes = plan.cases[0].plan.reasons
    (found,) = together.replay(source, where="epoch = 4").runs

    assert "its 2 ranks are replayed together, by as many workers" in notes
    assert "7 of its 11 checkpoints are not used, since not all ranks have them" in notes
    assert (found.mismatches, found.missing) == ([], [])
    assert together.did() == both(*["epoch"] * 3, *["step"] * 9)  # epochs 2, 3 and 4
    assert together.rows() == [row for row in together.reference(source) if row[1] >= 2]


@pytest.mark.long
def test_a_loop_of_rank_0_alone_is_run_where_the_others_wait_for_it(together: Together) -> None:
    body = {
        "first": """for check in (relive.loop("val", range(2)) if rank == 0 else range(2)):
            did("val")
            mean(check)"""
    }
    together.record(train(**body))
    source = train(**body, after='relive.log("x", net[0] + total)')

    (run,) = together.replay(source, where="epoch in (2, 4)").runs

    assert (run.mismatches, run.missing) == ([], [])
    assert "step0" not in together.did()
    assert together.rows() == [row for row in together.reference(source) if row[1] in (2, 4)]


@pytest.mark.long
def test_a_loop_that_is_left_by_break_ends_all_ranks(together: Together) -> None:
    """After it only rank 0 calls relive, so that nothing else would stop rank 1 there."""
    body = {"suffix": "relive.log('late', mean(1)) if rank == 0 else mean(1)"}
    last = "\n        if epoch == 3:\n            break"
    together.record(train(**body, after="pass" + last))
    source = train(**body, after='relive.log("x", net[0])' + last)

    (run,) = together.replay(source).runs

    assert (run.mismatches, run.missing) == ([], [])
    assert together.rows() == together.reference(source)


@pytest.mark.long
def test_a_rank_that_fails_is_reported_once_and_ends_the_others(together: Together) -> None:
    together.record(train())
    source = train(inside='relive.log("x", [net[0]][rank == 1 and epoch == 2])')

    (run,) = together.replay(source).runs

    (missing,) = run.missing
    assert missing == "rank 1: IndexError: list index out of range (missing: iterations 2–4)"
    assert "train.py" in run.tracebacks[0]
    rows = together.rows()
    assert {row[:2] for row in rows} == {(rank, epoch) for rank in range(2) for epoch in range(2)}
    assert not _left_over(together.script.home)


@pytest.mark.long
def test_a_rank_that_is_killed_ends_the_others(together: Together) -> None:
    together.record(train())
    kill = "os.kill(os.getpid(), 9) if rank == 1 and epoch == 3 else net[0]"

    (run,) = together.replay(train(after=f'relive.log("x", {kill})')).runs

    assert run.missing == ["rank 1: the worker was killed by SIGKILL (missing: iterations 3–4)"]
    assert {row[:2] for row in together.rows()} == {(rank, epoch) for rank in range(2) for epoch in range(3)}
    assert not _left_over(together.script.home)


def _left_over(home: Path) -> list[str]:
    """Processes that work below the folder of replays."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                cwd = os.readlink(process / "cwd")
            except OSError:
                continue
            found += [process.name] if cwd.startswith(str(home / "replays")) else []
    return found


@pytest.mark.long
def test_a_run_that_was_killed_midway_is_replayed_as_far_as_it_came(together: Together) -> None:
    hold = '"_HOLD" in os.environ and epoch == 3 and time.sleep(60)'
    processes = together.start(train(after=hold), _HOLD="1")
    while together.did().count("step0") + together.did().count("step1") < 24:
        time.sleep(0.05)
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    together.forget()
    source = train(after=f'relive.log("x", net[0] + total)\n        {hold}')

    (run,) = together.replay(source).runs

    assert (run.mismatches, run.missing) == ([], [])
    assert [what for what in together.did() if what.startswith("epoch")] == both(*["epoch"] * 4)
    # It had not logged anything after the statement in epoch 3.
    assert together.rows() == [row for row in together.reference(source) if row[1] < 3]


@pytest.mark.long
def test_an_error_that_ended_one_rank_then_ends_it_again_and_nothing_is_missing(together: Together) -> None:
    fail = "[1][rank == 1 and epoch == 3]"
    together.record(train(first=fail), codes=(1, 1))

    (run,) = together.replay(train(first=fail, after='relive.log("x", net[0])')).runs

    assert (run.mismatches, run.missing) == ([], [])
    assert {row[:2] for row in together.rows()} == {(rank, epoch) for rank in range(2) for epoch in range(3)}


@pytest.mark.long
def test_runs_with_missing_or_self_started_ranks_are_refused_with_a_remedy(together: Together) -> None:
    together.record(train())
    home = Home(together.script.home)
    (run,) = home.run_ids()
    source = train(after='relive.log("x", net[0])')
    lines = home.run_folder(run) / "1.lines"
    text = lines.read_text()

    lines.write_text(text.replace('"RELIVE_RANK":"1"', '"RELIVE_RANK":""'))
    unlaunched = together.replay(source).refusals
    lines.unlink()
    lines.with_suffix(".slots").unlink()
    missing = together.replay(source).refusals

    assert "record with torchrun, srun or mpirun to replay" in unlaunched[0][1]
    assert "the journal of rank 1 is not in this home; copy what" in missing[0][1]


# --- torchrun ---------------------------------------------------------------------------------------------------------

TORCHRUN = "from torch.distributed.run import main\nif __name__ == '__main__':\n    main()\n"
# Each rank draws its own random numbers, sees its own part of the data, and counts what it really does.
TORCH_TRAIN = """
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import relive

def did(what):
    with open(os.environ["DID"], "a") as file:
        file.write(f"{{what}}{{rank}}\\n")

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
x = torch.randn(48, 3)
data = TensorDataset(x, x.sum(1, keepdim=True))
hidden = [layer for _ in range(4) for layer in (torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1))]
layers = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), *hidden, torch.nn.Linear(32, 1))
net = DistributedDataParallel(layers, bucket_cap_mb=0.01)
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
torch.manual_seed(100 + rank)
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=4, sampler=sampler)
{prefix}
with relive.checkpointing(net=net, optimizer=optimizer, every=1):
    for epoch in relive.loop("epoch", range(4)):
        did("epoch")
        sampler.set_epoch(epoch)
        total = 0.0
        for inputs, targets in relive.loop("step", loader):
            did("step")
            noise = torch.rand(())
            loss = ((net(inputs) - targets) ** 2).mean() + noise
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            {inside}
        relive.log("loss", total)
        {after}
relive.log("final", total)
{suffix}
dist.destroy_process_group()
"""
WEIGHT = "net.module[0].weight.sum().item()"


def torch_train(**added: str) -> str:
    return TORCH_TRAIN.format(**{**dict.fromkeys(("prefix", "inside", "after", "suffix"), "pass"), **added})


class Launched(Together):
    """The same by torchrun."""

    def record(self, source: str, home: Path | None = None, *, codes: tuple[int, int] = (0, 0)) -> None:
        self.script.write(source)
        options = ("--standalone", "--nproc-per-node=3", "train.py")
        env = {"RELIVE_HOME": str(home or self.script.home)}
        self.script(TORCHRUN, *options, name="torchrun.py", env=env, check=codes == (0, 0))
        self.forget()


@pytest.mark.long
def test_a_training_under_torchrun_answers_at_every_depth(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three ranks, since their sums depend on the order in which they are added up, and so on what DDP did before."""
    launched = Launched(script, tmp_path, monkeypatch)
    probes = {
        "suffix": f'relive.log("x", {WEIGHT} + total + torch.rand(()).item())',
        "after": f'relive.log("y", {WEIGHT} + total)',
        "inside": f'relive.log("z", {WEIGHT} + loss.item())',
    }
    launched.record(torch_train())

    def asked(place: str, name: str, **how: str) -> list[str]:
        launched.forget()
        (run,) = launched.replay(torch_train(**{place: probes[place]}), name, workers=3, **how).runs
        assert (run.mismatches, run.missing, run.is_verified) == ([], [], True)
        return launched.did()

    assert asked("suffix", "x") == []
    # One step is run before the first state is restored, for what DDP makes of it.
    assert asked("after", "y") == both(*["epoch"] * 4, "step", ranks=3)
    assert asked("inside", "z", where="epoch >= 2") == both(*["epoch"] * 3, *["step"] * 9, ranks=3)
    reference = script.project.parent / "reference"
    launched.record(torch_train(**probes), reference)  # the random number is drawn last, so it changes no other
    for name in "xyz":
        rows = launched.rows(name)
        assert {row[0] for row in rows} == {0, 1, 2}
        assert rows == [row for row in launched.rows(name, reference) if name != "z" or row[1] >= 2]
