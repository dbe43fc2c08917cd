"""Runs that end early, for real: a replay gives what a run that logged the value from the start had, and no more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.errors import QueryError
from relive.hindsight import Answer
from relive.store import Home
from relive.store.catalog import Index
from tests.conftest import Script

# The script ends in epoch 5, after it has logged the loss of that epoch.
VERBS = """
import atexit, os, resource, signal, sys
import relive
net = [0.5, 0.25]
def how():  # an argument is the same in a replay, and a variable of the environment is gone
    return os.environ.get("_HOW") or "".join(sys.argv[1:])
def end(how):
    sys.stdout.flush()
    if how == "SIGINT":
        signal.raise_signal(signal.SIGINT)
    elif how in ("SIGTERM", "SIGKILL"):
        os.kill(os.getpid(), getattr(signal, how))
    elif how == "error":
        raise RuntimeError("it diverged")
    elif how == "exit":
        sys.exit(3)
    elif how == "os._exit":
        os._exit(3)
    elif how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        bytearray(64 << 30)
def main():
    {prefix}
    try:
        {opened}
            for epoch in {epochs}:
                for step in {steps}:
                    net[0] = net[0] * 0.9 + 0.01 * epoch + 0.001 * step
                    {inside}
                {before}
                {loss}
                {after}
                if epoch == 5 and how():
                    end(how())
                {late}
    finally:
        {finally_}
    {suffix}
main()
"""
WAYS = ("SIGINT", "SIGTERM", "SIGKILL", "error", "exit", "os._exit", "memory")
UNCATCHABLE = ("SIGTERM", "SIGKILL", "os._exit")  # neither `finally` nor exit handlers run
PLACES = ("prefix", "inside", "before", "after", "late", "finally_", "suffix")
NAMES = tuple(f"x_{place}" for place in PLACES)


def with_verbs(*added: str, checkpoints: bool) -> str:
    opened = "with relive.checkpointing(net=net, every=1):" if checkpoints else "if True:"
    return VERBS.replace("{opened}", opened).format(
        epochs='relive.loop("epoch", range(12))', steps='relive.loop("step", range(3))',
        loss='relive.log("loss", net[0])',
        **{place: f'relive.log("x_{place}", net[0])' if place in added else "pass" for place in PLACES},
    )  # fmt: skip


def hands_free(*added: str) -> str:
    return VERBS.replace("import relive\n", "").replace("{opened}", "if True:").format(
        epochs="range(12)", steps="range(3)", loss='print(f"loss {net[0]}")',
        **{place: f'print(f"x_{place} {{net[0]}}")' if place in added else "pass" for place in PLACES},
    )  # fmt: skip


class Ended:
    """Records scripts that end early, adds statements, and replays."""

    def __init__(self, script: Any) -> None:
        self.script = script

    def record(self, source: str, *argv: str, verb: str = "", **env: str) -> None:
        path = str(self.script.write(source))
        if verb:
            done = self.script.relive(verb, path, *argv, check=False, env=env)
        else:
            done = self.script(None, *argv, check=False, env=env)
        assert done.returncode != 0, done.stderr

    def replay(self, source: str, *names: str, **how: Any) -> Answer:
        self.script.write(source)
        return relive.replay(*(names or NAMES), home=self.script.home, workers=1, **how)

    def columns(self, home: Path | None = None, names: Sequence[str] = NAMES, **how: Any) -> dict[str, list[float]]:
        found = {}
        for name in names:
            try:
                table = relive.dataframe(name, home=home or self.script.home, **how)
            except QueryError:  # no run has it
                continue
            found[name] = table[name].dropna().tolist()
        return {name: values for name, values in found.items() if values}

    def twin(self, source: str, *argv: str, verb: str = "", **env: str) -> dict[str, list[float]]:
        """The values of a run that has the statements from the start, and ended the same way."""
        home = self.script.project.parent / "twin"
        self.record(source, *argv, verb=verb, RELIVE_HOME=str(home), **env)
        return self.columns(home)


@pytest.fixture
def ended(script: Any) -> Ended:
    return Ended(script)


def known_part(real: dict[str, list[float]], how: str, *, recurs: bool) -> dict[str, list[float]]:
    """What of the twin's values the record of a run shows to have happened: the loss of epoch 5 is its last record."""
    if recurs and how not in UNCATCHABLE:
        return real  # the replay ends as the run did, so all until then is known
    values = {name: real[name] for name in ("x_prefix", "x_inside", "x_before")}
    return values | {"x_after": real["x_after"][:-1], "x_late": real["x_late"]}


@pytest.mark.long
@pytest.mark.parametrize("recurs", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "none"])
@pytest.mark.parametrize("how", WAYS)
def test_a_replay_ends_where_the_run_ended(ended: Ended, how: str, checkpoints: bool, recurs: bool) -> None:
    argv, env = ((how,), {}) if recurs else ((), {"_HOW": how})
    ended.record(with_verbs(checkpoints=checkpoints), *argv, **env)

    ended.replay(with_verbs(*PLACES, checkpoints=checkpoints))

    found, real = ended.columns(), ended.twin(with_verbs(*PLACES, checkpoints=checkpoints), *argv, **env)
    assert found == known_part(real, how, recurs=recurs)


@pytest.mark.long
@pytest.mark.parametrize(("how", "every"), [*((way, "0") for way in WAYS), ("SIGINT", "1"), ("SIGKILL", "1")])
def test_a_replay_of_a_hands_free_run_ends_where_it_ended(ended: Ended, how: str, every: str) -> None:
    ended.record(hands_free(), verb="run", _HOW=how, RELIVE_EVERY=every)

    ended.replay(hands_free(*PLACES))

    real = ended.twin(hands_free(*PLACES), verb="run", _HOW=how)
    assert ended.columns() == known_part(real, how, recurs=False)


@pytest.mark.long
@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "none"])
@pytest.mark.parametrize(
    ("how", "ending"),
    [
        ("SIGKILL", "it was killed in epoch 5"),
        ("SIGINT", "it was interrupted in epoch 5"),
        ("exit", "it failed (SystemExit) in epoch 5"),
    ],
)
def test_what_a_run_never_reached_is_refused_without_work(
    ended: Ended, how: str, ending: str, checkpoints: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended.record(with_verbs(checkpoints=checkpoints), _HOW=how)
    ended.script.write(with_verbs("suffix", checkpoints=checkpoints))

    told = ended.script.relive("replay", "x_suffix", check=False)

    assert f"{ending}; x_suffix is logged after the loop, which it never reached; add --beyond-the-end" in told.stderr
    assert "nothing to replay" in told.stderr


@pytest.mark.long
@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "none"])
def test_beyond_the_end_values_are_computed_and_never_taken_for_what_happened(ended: Ended, checkpoints: bool) -> None:
    ended.record(with_verbs(checkpoints=checkpoints), _HOW="SIGKILL")

    (run,) = ended.replay(with_verbs("before", "suffix", checkpoints=checkpoints), beyond_the_end=True).runs

    assert (run.added, run.beyond, run.mismatches) == (6, 7, [])
    assert "x_suffix" not in ended.script.relive("show", "last").stdout
    table = relive.dataframe("x_suffix", home=ended.script.home, replays="all", sources=True)
    assert table["x_suffix_source"].dropna().tolist() == ["replay 2, never happened"]
    happened = ended.columns()
    assert {name: len(values) for name, values in happened.items()} == {"x_before": 6}
    every = ended.columns(replays="all")
    assert every["x_before"][:6] == happened["x_before"]
    assert {name: len(values) for name, values in every.items()} == {"x_before": 12, "x_suffix": 1}


def test_beyond_the_end_of_a_run_that_finished_there_is_nothing(ended: Ended) -> None:
    ended.script(with_verbs(checkpoints=True))
    source = with_verbs("before", checkpoints=True)
    ended.replay(source, "x_before")

    found = ended.replay(source, "x_before", beyond_the_end=True)

    assert not found.runs
    assert "has these values already" in found.refusals[0][1]


CAUGHT = """
import os, signal
import relive
net = [0.5]
try:
    {opened}
        for epoch in relive.loop("epoch", range(12)):
            net[0] = net[0] * 0.9 + 0.01 * epoch
            relive.log("loss", net[0])
            if epoch == 5 and os.environ.get("_HOW"):
                signal.raise_signal(signal.SIGINT)
            net[0] += 0.001
except KeyboardInterrupt:
    pass
relive.log("final", net[0])
{suffix}
"""


@pytest.mark.long
@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "none"])
def test_a_run_that_went_on_after_an_interrupt_gets_no_value_of_another_way(ended: Ended, checkpoints: bool) -> None:
    opened = "with relive.checkpointing(net=net, every=1):" if checkpoints else "if True:"
    ended.script(CAUGHT.format(opened=opened, suffix=""), env={"_HOW": "SIGINT"})

    found = ended.replay(CAUGHT.format(opened=opened, suffix='relive.log("x_suffix", net[0])'), "x_suffix")

    assert ended.columns() == {}
    ((_, why),) = found.refusals
    assert "met an error in epoch 5, which its replay does not meet" in why


@pytest.mark.long
def test_a_run_that_is_still_running_counts_as_far_as_its_record_shows(ended: Ended, tmp_path: Path) -> None:
    source = """
        import os
        import relive
        for epoch in relive.loop("epoch", range(12)):
            relive.log("loss", epoch * 0.5)
            if epoch == 4:
                print("here", flush=True)
                open(os.environ["_FIFO"]).read() if os.environ.get("_FIFO") else None
            {added}
        {suffix}
    """
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = ended.script.start(source.format(added="pass", suffix=""), env={"_FIFO": str(fifo)})
    assert process.stdout is not None
    process.stdout.readline()
    (run,) = [entry.record.run for entry in Index(Home(ended.script.home)).runs()]

    ended.replay(
        source.format(added='relive.log("x_before", epoch)', suffix='relive.log("x_suffix", 1.0)'),
        "x_before", "x_suffix", runs=[run],
    )  # fmt: skip

    fifo.write_text("go on")
    assert process.wait(60) == 0
    assert ended.columns() == {"x_before": [0, 1, 2, 3]}


THREADED = """
import os, signal, threading
import relive
stop = threading.Event()
def watch():
    while not stop.wait(0.001):
        relive.log("load", 1.0)
        {inside}
threading.Thread(target=watch, daemon=True).start()
for epoch in relive.loop("epoch", range(40)):
    stop.wait(0.005)
    {added}
    if epoch % 4 == 0:
        relive.log("loss", epoch * 0.5)
    if epoch == 18 and os.environ.get("_HOW"):
        os.kill(os.getpid(), signal.SIGKILL)
{suffix}
"""


@pytest.mark.long
def test_what_other_threads_log_does_not_show_how_far_the_training_came(ended: Ended) -> None:
    added = 'relive.log("x_before", epoch)'
    ended.record(THREADED.format(inside="pass", added="pass", suffix="pass"), _HOW="SIGKILL")

    ended.replay(THREADED.format(inside='relive.log("x_inside", 2.0)', added=added, suffix='relive.log("x_suffix", 1)'))

    found = ended.columns()
    assert found["x_before"][:17] == list(range(17))
    assert found["x_before"][-1] <= 18
    assert "x_suffix" not in found


CLOSED = """
import relive
def batches(epoch):
    for step in relive.loop("step", range(5)):
        yield epoch * 10 + step
def train():
    for epoch in relive.loop("epoch", range(3)):
        for batch in batches(epoch):
            {added}
            if batch % 10 == 2:
                break
        {after}
train()
"""


@pytest.mark.long
@pytest.mark.parametrize("after", ["pass", 'relive.log("loss", batch)'])
def test_a_finished_run_lacks_nothing_because_a_generator_was_closed(ended: Ended, after: str) -> None:
    ended.script(CLOSED.format(added="pass", after=after))

    ended.replay(CLOSED.format(added='relive.log("x_inside", batch)', after=after), "x_inside")

    assert ended.columns() == {"x_inside": [0, 1, 2, 10, 11, 12, 20, 21, 22]}


ANYWHERE = """
import os, signal
import relive
net = [0.5]
def at(*place):
    if os.environ.get("_AT") == " ".join(map(str, place)):
        os.kill(os.getpid(), getattr(signal, os.environ["_HOW"]))
        for _ in range(1000):  # an interrupt is raised by now
            pass
def log(place):
    {log}
def evaluate(epoch):
    for step in relive.loop("eval", range(2)):
        log("eval")
        at("eval", epoch, step)
        relive.log("eval_loss", net[0])
        at("scored", epoch, step)
at("start")
log("prefix")
relive.log("begin", 1.0)
at("begun")
try:
    {opened}
        for epoch in relive.loop("epoch", range(5)):
            log("first")
            at("first", epoch)
            for step in relive.loop("step", range(3)):
                net[0] = net[0] * 0.9 + 0.01 * step
                log("inside")
                at("inside", epoch, step)
                relive.log("step_loss", net[0])
                at("stepped", epoch, step)
            log("between")
            at("between", epoch)
            evaluate(epoch)
            log("before")
            at("before", epoch)
            relive.log("loss", net[0])
            log("after")
            at("after", epoch)
finally:
    log("finally")
    at("finally")
log("suffix")
at("suffix")
relive.log("final", net[0])
log("end")
at("end")
"""
EVERYWHERE = ("prefix", "first", "inside", "between", "eval", "before", "after", "finally", "suffix", "end")
ENDS = ("start", "begun", "first 0", "first 3", "inside 0 0", "inside 2 1", "stepped 4 2", "between 1", "eval 3 0",
        "scored 4 1", "before 4", "after 0", "after 4", "finally", "suffix", "end")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "none"])
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("end", ENDS)
def test_wherever_a_run_ends_its_replay_has_nothing_that_did_not_happen(
    ended: Ended, end: str, how: str, checkpoints: bool
) -> None:
    opened = "with relive.checkpointing(net=net, every=1):" if checkpoints else "if True:"
    plain = ANYWHERE.format(log="pass", opened=opened)
    asking = ANYWHERE.format(log='relive.log(f"x_{place}", net[0])', opened=opened)
    names = [f"x_{place}" for place in EVERYWHERE]
    if end != "start":
        ended.record(plain, _HOW=how, _AT=end)
        ended.replay(asking, *names)
    else:
        ended.script(plain, check=False, env={"_HOW": how, "_AT": end})  # it ends before it records anything

    found = ended.columns(names=names)
    home = ended.script.project.parent / "twin"
    ended.script(asking, check=False, env={"_HOW": how, "_AT": end, "RELIVE_HOME": str(home)})
    real = ended.columns(home, names=names) if home.exists() else {}
    assert {name: values for name, values in found.items() if values != real.get(name, [])[: len(values)]} == {}
    missing = sum(map(len, real.values())) - sum(map(len, found.values()))
    assert missing <= 3, (found, real)  # what it logged after its last record, and while it was interrupted


IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "train.py"])
"""
SELF_INTERRUPTING = """
import os, signal
import relive

w = 1.0
try:
    with relive.checkpointing(every=1):
        for epoch in relive.loop("epoch", range(6)):
            w = w * 0.9 + epoch
            if epoch == 3:
                os.kill(os.getpid(), signal.SIGINT)
            relive.log("w", w)
except KeyboardInterrupt:
    w = 0.0
"""


def test_a_run_that_ignored_ctrl_c_is_replayed_so(script: Script) -> None:
    script.write(SELF_INTERRUPTING)
    script(IGNORING, name="start.py")
    script.write(SELF_INTERRUPTING.replace('("w", w)', '("w", w)\n            relive.log("x", w + 1)'))
    script.relive("replay", "x", "--yes")

    frame = relive.dataframe("w", "x", home=script.home)
    assert len(frame) == 6
    assert (frame["x"] == frame["w"] + 1).all()


def test_a_replay_that_ends_earlier_than_the_run_says_so(script: Script, tmp_path: Path) -> None:
    source = """
    import os
    import relive

    w = 1.0
    with relive.checkpointing(every=1):
        for epoch in relive.loop("epoch", range(8)):
            w = w * 0.9 + epoch
            if epoch >= 4 and os.environ.get("STOP" + "_NOW"):
                break
            relive.log("w", w)
    """
    script(source)
    script.write(source.replace('("w", w)', '("w", w)\n            relive.log("x", w + 1)'))
    told = script.relive("replay", "x", "--yes", "--from-start", check=False, env={"STOP_NOW": "1"})

    assert told.returncode == 1
    assert "the replay ended earlier than the run did" in told.stdout + told.stderr
