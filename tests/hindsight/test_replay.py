"""Laws of replay, with real scripts: little work, right values, and a reason for what could not be done."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.hindsight import Answer, Question, ReplaySession, execute_plan, plan_replay
from relive.hindsight.workers import Task
from relive.store import Home
from relive.store.chunks import Chunks, list_checkpoints, list_kept_checkpoints
from relive.store.chunks.tombstones import drop_checkpoints
from relive.store.journal import parse_run

# The script counts what it really does in a file outside of its folder, which a replay leaves where it is.
HEAD = """
import os, random
import relive
random.seed(3)
def did(what):
    with open(os.environ["DID"], "a") as file:
        file.write(what + "\\n")
class Meter:
    def __init__(self):
        self.total = 0.0
    def add(self, value):
        self.total += value
net = [0.5, 0.25]
"""
TRAIN = (
    HEAD
    + """
{prefix}
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(6)):
        did("epoch")
        meter = Meter()
        for step in relive.loop("step", range(4)):
            did("step")
            net[0] = net[0] * 0.9 + random.random()
            meter.add(net[0])
            {inside}
        relive.log("loss", meter.total)
        {after}
relive.log("final", net[0])
{suffix}
"""
)


def train(**added: str) -> str:
    return TRAIN.format(**{**dict.fromkeys(("prefix", "inside", "after", "suffix"), "pass"), **added})


class Asked:
    """A recorded run, a statement added afterwards, and what the script did when it was replayed."""

    def __init__(self, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script = script
        self._did = tmp_path / "beside" / "did.lock"  # a replay leaves other files alone that it did not make
        self._did.parent.mkdir()
        monkeypatch.setenv("DID", str(self._did))

    def record(self, source: str, *args: str, check: bool = True) -> None:
        self.script(source, *args, check=check)
        self._did.unlink(missing_ok=True)

    def replay(self, source: str, name: str = "x", **how: Any) -> Answer:
        self.script.write(source)
        return relive.replay(name, home=self.script.home, **{"workers": 1, **how})

    def did(self) -> list[str]:
        return self._did.read_text().split() if self._did.exists() else []

    def column(self, name: str, home: Path | None = None) -> list[Any]:
        return relive.dataframe(name, home=home or self.script.home)[name].tolist()

    def reference(self, source: str, name: str = "x") -> list[Any]:
        """The values of a run that has the statement from the start."""
        home = self.script.project.parent / "reference"
        self.script(source, env={"RELIVE_HOME": str(home)})
        return self.column(name, home)


@pytest.fixture
def asked(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(script, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "statement", "work"),
    [
        pytest.param("prefix", 'relive.log("x", sum(net))', [], marks=pytest.mark.slow),
        ("suffix", 'relive.log("x", net[0] + meter.total + step + epoch)', []),
        ("after", 'relive.log("x", meter.total * 2 + step)', ["epoch"] * 6),
    ],
)
def test_no_more_is_run_than_the_statement_needs(asked: Asked, where: str, statement: str, work: list[str]) -> None:
    asked.record(train())

    found = asked.replay(train(**{where: statement}))

    assert asked.did() == work
    (run,) = found.runs
    assert (run.mismatches, run.missing) == ([], [])
    assert asked.column("x") == asked.reference(train(**{where: statement}))


@pytest.mark.long
def test_a_statement_in_the_nested_loop_runs_the_selected_iterations_only(asked: Asked) -> None:
    asked.record(train())

    found = asked.replay(train(inside='relive.log("x", net[0])'), where="epoch in (2, 4)", workers=2)

    assert sorted(asked.did()) == ["epoch"] * 2 + ["step"] * 8
    assert found.added == 8
    table = relive.dataframe("x", home=asked.script.home).dropna(subset="x")
    assert table["epoch"].tolist() == [2] * 4 + [4] * 4


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loop_that_draws_from_an_iterator_is_resumed(asked: Asked, workers: int) -> None:
    source = (
        HEAD
        + """
stream = iter(range(100))
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(6)):
        drawn = next(stream)
        for step in relive.loop("step", range(4)):
            did(f"step{{epoch}}")
            net[0] = net[0] * 0.9 + random.random()
            {inside}
        relive.log("loss", net[0])
        {after}
"""
    )
    asked.record(source.format(inside="pass", after="pass"))
    inside = source.format(inside='relive.log("x", net[0] + drawn)', after="pass")
    after = source.format(inside="pass", after='relive.log("y", net[0] + drawn)')

    (first,) = asked.replay(inside, where="epoch >= 4", workers=workers).runs
    steps = sorted(asked.did())
    (second,) = asked.replay(after, "y", where="epoch = 4").runs

    assert steps == ["step4"] * 4 + ["step5"] * 4  # loops on the way are skipped, also those that hold the statement
    assert (first.is_verified, second.is_verified) == (True, True)
    assert asked.column("x") == asked.reference(inside)[16:]
    assert asked.column("y")[-1] == asked.reference(after, "y")[4]


@pytest.mark.long
@pytest.mark.parametrize(
    ("main", "nested"),
    [
        ("handed(epochs)", "steps"),
        pytest.param("epochs", "handed(handed(steps))", marks=pytest.mark.slow),
        pytest.param("epochs", "list(steps)", marks=pytest.mark.slow),
        pytest.param("epochs", "taken(steps)", marks=pytest.mark.slow),
    ],
)
def test_a_loop_may_be_passed_on_before_it_is_iterated(asked: Asked, main: str, nested: str) -> None:
    source = (
        HEAD
        + """
def handed(items):
    for item in items:
        yield item
def taken(items):
    yield from items
last = 0.0
with relive.checkpointing(net=net, every=1):
    for epoch in MAIN:
        for step in NESTED:
            last = last * 0.5 + random.random()
        relive.log("loss", last)
        {after}
"""
    )
    source = source.replace("MAIN", main).replace("NESTED", nested)
    source = source.replace("epochs", 'relive.loop("epoch", range(5))').replace(
        "steps", 'relive.loop("step", range(3))'
    )
    asked.record(source.format(after="pass"))
    text = source.format(after="relive.log('x', last)")

    (run,) = asked.replay(text, workers=2).runs

    assert (run.missing, run.is_verified) == ([], True)
    assert asked.column("x") == asked.reference(text)


@pytest.mark.long
def test_an_iterable_that_logs_while_it_advances_adds_nothing_to_the_selected_iterations(asked: Asked) -> None:
    source = (
        HEAD
        + """
def numbers():
    for number in range(6):
        {inside}
        yield number
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", numbers()):
        net[0] += random.random()
        relive.log("loss", net[0])
"""
    )
    asked.record(source.format(inside="pass"))
    text = source.format(inside="relive.log('x', number)")

    asked.replay(text, where="epoch in (1, 4)")
    table = relive.dataframe("x", home=asked.script.home).dropna(subset=["epoch", "x"])
    found = set(zip(table["epoch"].tolist(), table["x"].tolist(), strict=True))

    assert {(1, 2), (4, 5)} <= found <= {(n, n + 1) for n in range(5)}  # others only where the way led through them


@pytest.mark.long
def test_a_named_object_may_refer_to_an_object_that_is_not_named(asked: Asked) -> None:
    source = (
        HEAD
        + """
class Model:
    steps = 0
    def __init__(self, meter):
        self.w, self.meter = 0.5, meter
meter = Meter()
model = Model(meter)
with relive.checkpointing(model=model, every=1):
    for epoch in relive.loop("epoch", range(4)):
        model.w += random.random()
        Model.steps += 1
        meter.add(model.w)
relive.log("final", model.w)
{suffix}
"""
    )
    asked.record(source.format(suffix="pass"))
    text = source.format(suffix='relive.log("x", model.w + model.meter.total + meter.total + Model.steps)')

    (run,) = asked.replay(text).runs

    assert (run.missing, run.is_verified) == ([], True)
    assert asked.column("x") == asked.reference(text)


@pytest.mark.long
def test_a_loop_without_iterations_is_skipped_like_others(asked: Asked) -> None:
    source = (
        HEAD
        + """
meter = Meter()
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(0)):
        meter = Meter()
relive.log("final", net[0])
{suffix}
"""
    )
    asked.record(source.format(suffix="pass"))

    (run,) = asked.replay(source.format(suffix='relive.log("x", meter.total)')).runs

    assert (run.mismatches, run.missing, run.unrestored) == ([], [], [])
    assert asked.column("x") == [0.0]


@pytest.mark.long
def test_iterations_can_be_selected_also_when_no_checkpoint_is_left(asked: Asked) -> None:
    asked.record(train())
    home = Home(asked.script.home)
    (run_id,) = home.run_ids()
    drop_checkpoints(home.run_folder(run_id), list_kept_checkpoints(home.run_folder(run_id), parse_run(home, run_id)))
    source = train(after='relive.log("x", net[0])')

    (run,) = asked.replay(source, where="epoch = 4").runs

    assert run.is_verified
    assert asked.column("x")[4] == asked.reference(source)[4]


@pytest.mark.long
def test_a_second_replay_runs_only_what_is_missing(asked: Asked) -> None:
    asked.record(train())
    source = train(after='relive.log("x", net[0])')
    asked.replay(source, where="epoch < 2")
    asked.replay(source)

    again = asked.replay(source)

    assert again.runs == []
    assert "already" in again.refusals[0][1]
    assert asked.did() == ["epoch"] * 6
    assert asked.column("x") == asked.reference(source)


@pytest.mark.slow
def test_replays_are_kept_side_by_side(asked: Asked) -> None:
    asked.record(train())
    asked.replay(train(suffix='relive.log("x", 1)'))
    asked.replay(train(suffix='relive.log("x", 2)'), again=True)
    home = asked.script.home

    assert relive.dataframe("x", home=home)["x"].tolist() == [2]
    assert sorted(relive.dataframe("x", home=home, replays="all")["x"].tolist()) == [1, 2]
    assert relive.dataframe("final", "x", home=home, replays="none")["x"].isna().all()


HIDDEN = (
    HEAD
    + """
import collections, io, itertools
import numpy as np
class Slotted:
    __slots__ = ("value",)
    def __init__(self): self.value = 0.0
class Bag(list):
    pass
def counter():
    n = 0
    def add():
        nonlocal n
        n += 1
        return n
    return add
def remember(value, kept=[]):
    kept.append(value)
    return len(kept)
def grow(items, value):
    items.append(value)
class Net:
    made = 0
def outer_add(value):
    meter.add(value)
def bump(by):
    bump.calls = getattr(bump, "calls", 0) + by
open("lines.txt", "w").write("\\n".join(map(str, range(99))))
lines = open("lines.txt")
meter, slotted, bag, ticks = Meter(), Slotted(), Bag(), counter()
meters = {"a": Meter(), "b": [Meter()]}
history, recent, seen, counts = [], collections.deque(maxlen=3), set(), collections.Counter()
vector = np.zeros(3)
view = vector[:2]
def fit(meter):
    with relive.checkpointing(net=net, every=1):
        for epoch in relive.loop("epoch", range(4)):
            for step in relive.loop("step", range(3)):
                net[0] = net[0] * 0.9 + random.random()
                slotted.value += net[0]
                bag.append(step)
                ticks()
                remember(step)
                grow(history, net[0])
                Net.made += 1
                meter.add(net[0])
                outer_add(1.0)
                bump(2)
                lines.readline()
                meters["a"].add(1.0)
                meters["b"][0].add(2.0)
                recent.append(step)
                seen.add(epoch)
                counts[step] += 1
                np.add(vector, 1.0, out=vector)
                current = history
                state.total += 1.5
                state.tick()
            current.append(0.25)
            {after}
    return meter
import state
own = fit(Meter())
relive.log("final", net[0])
{suffix}
"""
)
STATE = """
total, calls = 0.0, 0
def tick():
    global calls
    calls += 1
"""
ALL_OF_IT = (
    'relive.log("x", [slotted.value, len(bag), ticks.__closure__[0].cell_contents, len(remember.__defaults__[0]), '
    "sum(history), Net.made, own.total, meter.total, bump.calls, lines.tell(), "
    "meters['a'].total, meters['b'][0].total, list(recent), len(seen), "
    "sum(counts.values()), float(view.sum()), state.total, state.calls])"
)


@pytest.mark.long
@pytest.mark.parametrize("place", ["after", pytest.param("suffix", marks=pytest.mark.slow)])
def test_state_that_no_variable_refers_to_is_restored(asked: Asked, place: str) -> None:
    statement = ALL_OF_IT if place == "suffix" else ALL_OF_IT.replace("own.total", "0.0")
    plain, with_it = (HIDDEN.replace("{after}", a).replace("{suffix}", s) for a, s in (
        ("pass", "pass"), (statement if place == "after" else "pass", statement if place == "suffix" else "pass"),
    ))  # fmt: skip
    asked.script.write(STATE, "state.py")
    asked.record(plain)

    found = asked.replay(with_it)

    (run,) = found.runs
    assert (run.missing, run.mismatches, run.unrestored) == ([], [], [])
    assert asked.column("x") == asked.reference(with_it)


LARGE = (
    HEAD
    + """
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(3)):
        for step in relive.loop("step", range(2)):
            table = list(range(5000 + epoch))
        {after}
"""
)


@pytest.mark.long
def test_a_variable_that_was_not_kept_is_reported_and_not_stale(asked: Asked) -> None:
    asked.record("table = [1]\n" + LARGE.format(after="pass"))
    source = "table = [1]\n" + LARGE.format(after='relive.log("x", len(table))')

    (run,) = asked.replay(source).runs

    assert "it ran from the start" in run.notes[0]
    assert "table is not in the checkpoint" in run.notes[0]
    assert asked.column("x") == [5000, 5001, 5002]


WAYS = (
    HEAD
    + """
def steps(epoch):
    for step in relive.loop("step", range(5)):
        did("step")
        net[0] = net[0] * 0.9 + random.random()
        if epoch == 1:
            return "returned"
        if epoch == 2:
            raise ValueError
        if epoch == 3:
            break
    else:
        return "else"
    return "broken"
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(5)):
        try:
            how = steps(epoch)
        except ValueError:
            how = "raised"
        relive.log("loss", net[0])
        {after}
"""
)


def test_a_loop_that_was_left_abnormally_is_left_the_same_way_again(asked: Asked) -> None:
    asked.record(WAYS.format(after="pass"))

    (run,) = asked.replay(WAYS.format(after='relive.log("x", how)')).runs

    assert run.mismatches == []
    assert asked.column("x") == ["else", "returned", "raised", "broken", "else"]
    assert asked.did() == ["step"] * 3  # the loops that ran out are skipped, also past their else


FAILING = (
    HEAD
    + """
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(6)):
        net[0] += random.random()
        relive.log("loss", net[0])
        {after}
        if epoch == 3:
            raise RuntimeError("boom")
"""
)


def test_a_run_that_failed_fails_again_and_that_is_right(asked: Asked) -> None:
    asked.record(FAILING.format(after="pass"), check=False)

    (run,) = asked.replay(FAILING.format(after='relive.log("x", net[0] * 2)')).runs

    assert (run.missing, run.added, run.is_verified) == ([], 4, True)


SWEEP = (
    HEAD
    + """
for lr in (0.1, 0.2, 0.3):
    with relive.run(f"lr {{lr}}"):
        net = [lr]
        with relive.checkpointing(net=net, every=1):
            for epoch in relive.loop("epoch", range(3)):
                net[0] = net[0] * 0.9 + random.random()
                relive.log("loss", net[0])
        {suffix}
"""
)


@pytest.mark.slow
def test_each_of_several_runs_of_a_script_is_replayed_separately(asked: Asked) -> None:
    asked.record(SWEEP.format(suffix="pass"))
    source = SWEEP.format(suffix='relive.log("x", net[0])')

    found = asked.replay(source)

    assert [(run.missing, run.added) for run in found.runs] == [([], 1)] * 3
    assert asked.column("x") == asked.reference(source)


def test_the_project_is_left_as_it_is(asked: Asked) -> None:
    source = (
        HEAD
        + """
open("model.txt", "w").write("weights")
os.makedirs("out", exist_ok=True)
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(2)):
        open("out/log.txt", "a").write(f"{epoch}\\n")
"""
    )
    asked.record(source)
    project = asked.script.project
    (project / "model.txt").write_text("mine now")
    before = {path: path.read_bytes() for path in project.rglob("*.txt")}

    (run,) = asked.replay(source + 'relive.log("x", 1)\n').runs

    assert run.added == 1
    assert {path: path.read_bytes() for path in project.rglob("*.txt")} == before
    assert list(asked.script.home.joinpath("replays").iterdir()) == []


def test_a_script_that_writes_into_the_project_by_its_full_path_is_stopped(asked: Asked) -> None:
    target = asked.script.project / "model.txt"
    source = HEAD + f"open({str(target)!r}, 'w').write('weights')\nrelive.log('y', 1)\n"
    asked.record(source)
    target.write_text("mine now")

    (run,) = asked.replay(source + 'relive.log("x", 1)\n').runs

    assert target.read_text() == "mine now"
    assert "may not write to" in run.missing[0]


@pytest.mark.long
def test_a_worker_that_is_killed_is_tried_again_and_what_is_done_is_kept(asked: Asked) -> None:
    source = (
        HEAD
        + """
import signal
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(6)):
        net[0] += random.random()
        {after}
        {die}
"""
    )
    asked.record(source.format(after="pass", die="pass"))
    die = "os.kill(os.getpid(), signal.SIGKILL) if relive.log('x', epoch) == 3 else did('epoch')"

    (run,) = asked.replay(source.format(after="pass", die=die)).runs

    assert asked.did() == ["epoch"] * 6  # twice to the third, where it dies
    assert "SIGKILL" in run.missing[0]
    assert "iterations 3–5" in run.missing[0]
    assert asked.column("x") == [0, 1, 2]  # not the value of the iteration that it did not come to the end of


def damage(home: Home, iterations: range) -> None:
    """Damages the checkpoints that were taken after these numbers of iterations."""
    (run_id,) = home.run_ids()
    (recorded,) = parse_run(home, run_id)
    for row in list_checkpoints(recorded):
        if row.place == "iteration" and row.iterations in iterations:
            Chunks(home.chunks).path(row.manifest).write_bytes(b"damaged")


@pytest.mark.long
@pytest.mark.parametrize("which", ["the nearest", pytest.param("all", marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_is_passed_over_and_reported(asked: Asked, which: str) -> None:
    asked.record(train())
    damage(Home(asked.script.home), range(4, 5) if which == "the nearest" else range(7))
    source = train(after='relive.log("x", net[0])')

    (run,) = asked.replay(source, where="epoch = 4").runs

    assert (run.missing, run.mismatches) == ([], [])
    assert "can't be read and was passed over" in " ".join(run.notes)
    if which == "the nearest":
        assert asked.did().count("epoch") < 4  # from the checkpoint before it, not from the start
    assert asked.column("x")[-1:] == asked.reference(source)[4:5]  # what comes before it is right, too
    assert asked.column("x") == asked.reference(source)[5 - len(asked.column("x")) : 5]


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (train(), "nothing in the project logs x"),
        (HEAD + "import no_such_thing\nrelive.log('x', 1)\n", "add"),
    ],
)
def test_a_name_that_nothing_logs_is_refused(asked: Asked, source: str, words: str) -> None:
    asked.record(train())

    found = asked.replay(source) if words != "add" else asked.replay(train())

    assert found.runs == []
    assert "nothing in the project logs x" in found.refusals[0][1]


@pytest.mark.slow
def test_a_script_that_reads_the_terminal_is_reported(asked: Asked) -> None:
    source = HEAD + "try:\n    input()\nexcept EOFError:\n    pass\nrelive.log('y', 1)\n"
    asked.record(source)

    (run,) = asked.replay(source + "input()\nrelive.log('x', 1)\n").runs

    assert run.missing == [] or "terminal" in run.missing[0]


def test_files_older_than_the_run_are_found_and_newer_ones_are_not(asked: Asked) -> None:
    project = asked.script.project
    (project / ".gitignore").write_text("data/\n")
    (project / "data").mkdir()
    (project / "data" / "numbers.txt").write_text("12345")
    os.utime(project / "data" / "numbers.txt", (1, 1))
    source = """
import os
text = open("data/numbers.txt").read()  # before anything of relive
had = os.path.exists("model.bin")
import relive
relive.log("y", len(text) + had)
open("model.bin", "w").write("weights")
open("data/cache.txt", "w").write("more")
"""
    asked.record(source)

    (run,) = asked.replay(source + "relive.log('x', len(text))\n").runs

    assert (run.missing, run.mismatches, run.added) == ([], [], 1)
    assert (project / "data" / "numbers.txt").read_text() == "12345"


@pytest.mark.long
def test_folders_that_were_there_before_the_run_are_there_in_the_replay(asked: Asked) -> None:
    for folder in ("empty", "ignored/deep", "written"):
        (asked.script.project / folder).mkdir(parents=True)
    asked.script.write("ignored/", ".gitignore")
    source = (
        HEAD
        + """
os.mkdir("made")
for epoch in relive.loop("epoch", range(3)):
    for folder in ("ignored/deep", "written", "made"):
        with open(f"{{folder}}/{{epoch}}.txt", "w") as file:
            file.write("x")
    relive.log("files", len(os.listdir("written")) + len(os.listdir("empty")))
    {after}
"""
    )
    asked.record(source.format(after=""))

    (run,) = asked.replay(source.format(after='relive.log("x", epoch)')).runs

    assert (run.missing, run.mismatches) == ([], [])
    assert asked.column("x") == [0, 1, 2]


@pytest.mark.slow
def test_a_missing_input_is_reported(asked: Asked) -> None:
    data = asked.script.project / "numbers.csv"
    data.write_text("1\n2\n")
    source = HEAD + "text = open('numbers.csv').read()\nrelive.log('y', len(text))\n"
    asked.record(source)
    data.unlink()

    (run,) = asked.replay(source + "relive.log('x', len(text))\n").runs

    assert "numbers.csv" in run.missing[0]


@pytest.mark.slow
def test_a_missing_package_is_reported(asked: Asked) -> None:
    (asked.script.project / "extra").mkdir()
    outside = asked.script.project.parent / "lib"
    outside.mkdir()
    (outside / "gone_soon.py").write_text("value = 1\n")
    source = HEAD + f"import sys\nsys.path.append({str(outside)!r})\nimport gone_soon\nrelive.log('y', 1)\n"
    asked.record(source)
    (outside / "gone_soon.py").unlink()

    (run,) = asked.replay(source + "relive.log('x', 1)\n").runs

    assert "gone_soon" in run.missing[0]
    assert "install it" in run.missing[0]


@pytest.mark.long
def test_a_value_that_is_not_reproduced_is_reported_and_marked(asked: Asked) -> None:
    source = (
        HEAD
        + """
def shift():  # asked in each iteration: what stands before the loop is restored
    return float(os.environ.get("_SHIFT", "0"))
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(3)):
        net[0] += random.random()
        relive.log("loss", net[0] + shift())
        {after}
"""
    )
    asked.record(source.format(after="pass"))
    with_x = source.format(after="relive.log('x', net[0])")
    os.environ["_SHIFT"] = "1"
    try:
        (run,) = asked.replay(with_x).runs
    finally:
        del os.environ["_SHIFT"]

    assert (run.verdict, run.mismatches[0].name, run.mismatches[0].where) == ("contradicted", "loss", "epoch 0")
    assert relive.dataframe("x", home=asked.script.home)["x"].tolist() == []
    everything = relive.dataframe("x", home=asked.script.home, sources=True, contradicted=True)
    assert everything["x_source"].tolist() == ["replay 1, contradicted"] * 3
    assert asked.replay(with_x).runs[0].is_verified  # contradicted values are no answer
    assert relive.dataframe("x", home=asked.script.home)["x"].tolist() == asked.reference(with_x)


@pytest.mark.long
def test_a_later_replay_that_contradicts_the_record_replaces_nothing(asked: Asked) -> None:
    source = (
        HEAD
        + """
def shift():  # asked in each iteration: what stands before the loop is restored
    return float(os.environ.get("_SHIFT", "0"))
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(3)):
        net[0] += random.random()
        relive.log("loss", net[0] + shift())
        {after}
"""
    )
    asked.record(source.format(after="pass"))
    with_x = source.format(after="relive.log('x', net[0] + shift())")
    (first,) = asked.replay(with_x).runs
    right = asked.column("x")
    os.environ["_SHIFT"] = "1"
    try:
        (second,) = asked.replay(with_x, again=True).runs
    finally:
        del os.environ["_SHIFT"]

    assert (first.is_verified, second.verdict, second.added) == (True, "contradicted", 3)
    assert asked.column("x") == right == asked.reference(with_x)


@pytest.mark.long
def test_a_value_of_the_clock_is_unverified_and_says_why(asked: Asked) -> None:
    asked.record(train())

    (run,) = asked.replay("import time\n" + train(after='relive.log("x", time.time() - net[0])')).runs

    assert (run.verdicts, run.causes) == ({"x": {"unverified": 6}}, ["x reads the clock (time.time)"])
    table = relive.dataframe("x", home=asked.script.home)
    assert (table["x"].dtype.kind, table["x_verdict"].tolist()) == ("f", ["unverified"] * 6)


@pytest.mark.long
@pytest.mark.parametrize(
    ("added", "shift", "code", "told"),
    [
        ("net[0]", "0", 0, r"3 values added: 3 (proven|reproduced); 3 recorded values came out the same"),
        ("time.time() + net[0]", "0", 3, "3 values added: 3 unverified"),
        ("net[0]", "1", 1, "3 values added: 3 contradicted"),
    ],
)
def test_the_exit_code_and_the_summary_tell_the_verdicts(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, added: str, shift: str, code: int, told: str
) -> None:
    monkeypatch.setenv("_SHIFT", "0")
    source = (
        "import time\n"
        + HEAD
        + """
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(3)):
        net[0] += random.random()
        relive.log("loss", net[0] + float(os.environ["_SHIFT"]))
"""
    )
    asked.record(source)
    asked.script.write(source + f"        relive.log('x', {added})\n")
    monkeypatch.setenv("_SHIFT", shift)

    done = asked.script.relive("replay", "x", "--yes", check=False)

    assert done.returncode == code, done
    assert re.search(told, done.stdout), done


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "cause"),
    [("", "the random generators were not seeded before relive began"), ("random.seed(3)", "the script is not")],
)
def test_a_replay_from_the_start_that_differs_is_not_blamed_on_the_checkpoints(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, seed: str, cause: str
) -> None:
    monkeypatch.setenv("_SHIFT", "0")
    source = f"""
import os, random
import relive
{seed}
net = [random.random() + float(os.environ["_SHIFT"])]
for epoch in relive.loop("epoch", range(3)):
    net[0] = net[0] * 0.5
    relive.log("loss", net[0])
    ADDED
"""
    asked.record(source.replace("ADDED", ""))
    monkeypatch.setenv("_SHIFT", "1")

    (run,) = asked.replay(source.replace("ADDED", "relive.log('x', net[0])"), from_start=True).runs

    assert (run.verdict, len(run.causes)) == ("contradicted", 1)
    assert cause in run.causes[0]


UNSEEDED = """
import random
import numpy as np
import relive
net = np.random.rand(4) + random.random()
{before}
with relive.checkpointing(net=net, every=2):
    for epoch in relive.loop("epoch", range(5)):
        net *= np.random.rand()
        relive.log("loss", float(net.sum()))
        {inside}
"""


@pytest.mark.long
def test_a_script_that_nobody_seeded_continues_from_its_recorded_state(asked: Asked) -> None:
    asked.record(UNSEEDED.format(before="", inside=""))
    recorded = asked.column("loss")

    (run,) = asked.replay(UNSEEDED.format(before="", inside='relive.log("x", float(net.sum()))'), workers=1).runs

    assert run.verdicts == {"x": {"proven": 5}}
    assert asked.column("x") == recorded


@pytest.mark.long
def test_a_value_before_the_loop_of_a_script_that_nobody_seeded_is_not_relied_on(asked: Asked) -> None:
    asked.record(UNSEEDED.format(before="", inside=""))

    (run,) = asked.replay(UNSEEDED.format(before='relive.log("x", float(net.sum()))', inside="")).runs

    assert run.verdicts == {"x": {"unverified": 1}}


@pytest.mark.slow
def test_arrays_come_back_from_a_replay(asked: Asked) -> None:
    asked.record(train())

    (run,) = asked.replay("import numpy as np\n" + train(suffix='relive.log("x", np.arange(20_000.0))')).runs

    assert (run.missing, run.added) == ([], 1)


@pytest.mark.long
def test_a_plan_shows_what_it_would_do_and_does_nothing(asked: Asked) -> None:
    asked.record(train())
    asked.script.write(train(after='relive.log("x", net[0])'))

    with ReplaySession(Home(asked.script.home)) as session:
        plan = plan_replay(session, Question(("x",), workers=2))
        (case,) = plan.cases
        assert (case.plan.depth, case.plan.iterations) == ("outer", 6)
        assert plan.cost_s > 0

    assert asked.did() == []
    assert asked.script.relive("replay", "x", "--explain").stdout.count("outer") == 1
    assert asked.did() == []


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_replay_that_is_stopped_keeps_what_is_done(asked: Asked, ending: signal.Signals) -> None:
    source = (
        HEAD
        + """
import time
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(50)):
        net[0] += random.random()
        did("epoch")
        time.sleep(float(os.environ.get("_PAUSE", "0")))
        {after}
"""
    )
    asked.record(source.format(after="pass"))
    asked.script.write(source.format(after="relive.log('x', net[0])"))
    command = ["-m", "relive", "replay", "x", "--workers", "1", "--yes"]
    process = asked.script._start(command, env={"_PAUSE": "0.1"})
    deadline = time.monotonic() + 60
    while asked.did().count("epoch") < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(ending)
    _, stderr = process.communicate(timeout=60)

    kept = relive.dataframe("x", home=asked.script.home)["x"].dropna()
    assert 3 <= len(kept) < 50, stderr
    assert "stopped; what was done is kept" in stderr


@pytest.mark.long
def test_ctrl_c_is_reported_also_while_a_damaged_checkpoint_is_passed_over(asked: Asked) -> None:
    asked.record(train())
    home, seen = Home(asked.script.home), []
    damage(home, range(4, 5))
    asked.script.write(train(after='relive.log("x", net[0])'))

    def stop_the_second_time(tasks: Sequence[Task]) -> None:
        if seen and not any(task.damaged for task in tasks):
            raise KeyboardInterrupt
        seen.extend(task for task in tasks if task.damaged)

    with ReplaySession(home) as session:
        plan = plan_replay(session, Question(("x",), "epoch = 4", workers=1))
        found = execute_plan(session, plan, watch=stop_the_second_time)

    assert seen
    assert found.is_stopped
    assert found.added == 0


@pytest.mark.slow
def test_what_a_script_logs_at_exit_belongs_to_its_run(asked: Asked) -> None:
    source = HEAD + "import atexit\natexit.register(lambda: relive.log('bye', net[0]))\nrelive.log('y', 1)\n"
    asked.record(source)

    (run,) = asked.replay(source + "relive.log('x', 2)\n").runs

    assert (run.reproduced, run.mismatches, run.added) == (2, [], 1)


TORCH = """
import torch
import relive
torch.manual_seed(5)
def evaluate(net, x, y):
    net.eval()
    with torch.no_grad():
        found = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return found
def main():
    x = torch.randn(96, 8)
    y = (x.sum(1) > 0).long()
    data = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    layers = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2)
    net = torch.nn.Sequential(*layers)
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
    best = 0.0
    with relive.checkpointing(net=net, opt=opt, every=1):
        for epoch in relive.loop("epoch", range(5)):
            for a, b in relive.loop("step", loader):
                opt.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(a), b)
                loss.backward()
                opt.step()
                {inside}
            schedule.step()
            best = max(best, evaluate(net, x, y))
            relive.log("loss", loss.item())
            {after}
    relive.log("best", best)
    {suffix}
main()
"""


def test_gradients_that_the_checkpoint_of_a_skipped_loop_lacks_contradict_nothing(asked: Asked) -> None:
    pytest.importorskip("torch")
    nothing = dict.fromkeys(("inside", "after", "suffix"), "pass")
    asked.record(TORCH.format(**nothing))
    statement = "relive.log('x', sum(p.norm().item() for p in net.parameters()))"
    (run,) = asked.replay(TORCH.format(**nothing | {"after": statement, "suffix": statement})).runs

    assert (run.added, run.mismatches) == (6, [])
    table = relive.sql("select distinct verdict from logs where replay > 0", home=asked.script.home)
    assert table["verdict"].tolist() == ["proven"]


@pytest.mark.parametrize(
    ("place", "statement", "workers"),
    [
        ("after", "relive.log('x', sum(p.norm().item() for p in net.parameters()) + loss.item() + a.sum().item())", 1),
        pytest.param("inside", "relive.log('x', loss.item())", 2),
        pytest.param(
            "suffix", "relive.log('x', evaluate(net, x, y) + torch.rand(1).item())", 1, marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.slow
def test_a_network_comes_back_bit_for_bit(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, place: str, statement: str, workers: int
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    nothing = dict.fromkeys(("inside", "after", "suffix"), "pass")
    asked.record(TORCH.format(**nothing))
    source = TORCH.format(**{**nothing, place: statement})

    (run,) = asked.replay(source, workers=workers).runs

    assert (run.missing, run.mismatches, run.unrestored) == ([], [], [])
    assert asked.column("x") == asked.reference(source)


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'import atexit; atexit.register(lambda: relive.log("x", net[0]))'),
        (
            "",
            'import threading, time; threading.Thread(target=lambda: [time.sleep(0.3), relive.log("x", 1.0)]).start()',
        ),
        ("import sys", 'relive.log("x", net[1]); sys.stdout.close(); sys.stderr.close()'),
        ("import sys", 'relive.log("x", net[1]); sys.stdout = None'),
    ],
    ids=["handlers at exit", "threads that go on", "closed streams", "no stream"],
)
def test_what_a_script_does_at_its_end_is_part_of_it(asked: Asked, before: str, after: str) -> None:
    asked.record(train(prefix=before or "pass"))

    found = asked.replay(train(prefix=before or "pass", suffix=after))

    assert found.is_good, found
    assert asked.column("x") == asked.reference(train(prefix=before or "pass", suffix=after))


SHARED = """
import relive
net = [0.5]
{start}
def main():
    global first, second
    with relive.checkpointing(net=net, every=2):
        for epoch in relive.loop("epoch", range(4)):
            for step in relive.loop("step", range(2)):
                net[0] += 1.0
            {change}
            relive.log("sums", sum(first) * 100 + sum(second))
            {asked}
main()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("start", "change"),
    [
        ("first = []; second = first", "first = first + [net[0]]"),
        ("first = []; second = first", "second = second + [net[0]]"),
        ("first, second = [], []", "first.append(net[0]); second = first"),
        ("first, second = [], [1.0]", "first, second = second + [net[0]], first"),
    ],
    ids=["one is bound anew", "the other is", "they become one", "they swap"],
)
def test_names_share_an_object_where_they_did_in_the_run(asked: Asked, start: str, change: str) -> None:
    asked.record(SHARED.format(start=start, change=change, asked=""))
    source = SHARED.format(start=start, change=change, asked='relive.log("x", len(first) * 10 + len(second))')

    found = asked.replay(source, where="epoch = 3")

    assert [run.mismatches for run in found.runs] == [[]]
    assert found.reproduced >= 1
    assert asked.column("x")[-1] == asked.reference(source)[-1]


@pytest.mark.long
def test_variables_of_functions_are_restored_in_scripts_that_the_command_starts(script: Any):
    """The frames around a script are those of whatever has started it: another one in a replay."""
    source = """
        import random
        random.seed(0)
        def train(n):
            total = 0.0
            for epoch in range(n):
                x = random.random()
                total += x
                print(f"loss: {x}")
                ADDED
            return total
        train(6)
    """
    command = str(Path(sys.executable).parent / "relive")
    script.write(source.replace("ADDED", ""))
    script._finish([command, "run", "train.py"], check=True, timeout=120, env={"RELIVE_EVERY": "1"})
    script.write(source.replace("ADDED", 'print(f"total: {total}")'))
    script.relive("replay", "total", "epoch >= 4", "--yes")
    told = script.relive("dataframe", "loss", "total", "--where", "epoch >= 4", "--json").stdout
    rows = [json.loads(line) for line in told.splitlines()]
    drawn = random.Random(0)
    totals = list(itertools.accumulate(drawn.random() for _ in range(6)))

    assert [row["total"] for row in rows] == totals[4:]
