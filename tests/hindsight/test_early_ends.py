"""Runs that end early, for real: a replay gives what a run that logged the value from the start had, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive
from relive.errors import QueryError
from relive.hindsight import Answer

# The script ends in epoch 5, after it has logged the loss of that epoch.
VERBS = """
import atexit, os, resource, signal, sys
import relive
net = [0.5, 0.25]
def how():  # an argument is the same in a replay, and a variable of the environment is gone
    return os.environ.get("HOW") or "".join(sys.argv[1:])
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

    def columns(self, home: Path | None = None, **how: Any) -> dict[str, list[float]]:
        found = {}
        for name in NAMES:
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
    argv, env = ((how,), {}) if recurs else ((), {"HOW": how})
    ended.record(with_verbs(checkpoints=checkpoints), *argv, **env)

    ended.replay(with_verbs(*PLACES, checkpoints=checkpoints))

    found, real = ended.columns(), ended.twin(with_verbs(*PLACES, checkpoints=checkpoints), *argv, **env)
    assert found == known_part(real, how, recurs=recurs)
