"""`relive replay` says what came and what did not, as text and as JSON; `relive stop` ends what stays after it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from relive.cli import main, warm_processes
from relive.cli.commands.replay_command import _report
from relive.cli.warm_processes import find_warm_processes
from relive.hindsight import Answer, RunAnswer
from tests.conftest import Script

TRAIN = """
    import relive
    import numpy

    lr = relive.arg("lr", 0.1)
    total = numpy.zeros(3)
    with relive.checkpointing(total=total):
        for epoch in relive.loop("epoch", range(2)):
            total += lr
            relive.log("loss", total.sum())
"""


def test_a_summary_also_counts_runs_that_gave_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(
        [
            RunAnswer("7c1f0b5e9a21", added=3),
            RunAnswer("1f2e77ab0c44", missing=["it crashed"]),
            RunAnswer("2f2e77ab0c44", added=1, missing=["it crashed"]),
            RunAnswer("3f2e77ab0c44"),
        ],
        refusals=[("4f2e77ab0c44", "it has these values already")],
    )

    _report(answer, ["mean"])

    told = capsys.readouterr().out
    assert told.startswith("2 runs, 4 values added")
    assert "1 run failed, 1 run incomplete, 1 run without a value, 1 run left out" in told


@pytest.mark.long
def test_a_replay_as_json_is_the_plan_and_the_answer(script: Script) -> None:
    script(TRAIN)
    script.write(TRAIN + '            relive.log("first", total[0])\n')

    planned = json.loads(script.relive("replay", "first", "--explain", "--json").stdout)
    done = json.loads(script.relive("replay", "first", "--json").stdout)
    nothing = script.relive("replay", "first", "epoch > 9", "--json", check=False)

    assert (planned["plan"]["rows"][0]["iterations"], planned["answer"]) == (2, None)
    assert done["answer"]["values"] == 2
    assert nothing.returncode == 1
    assert json.loads(nothing.stdout)["plan"]["refused"]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="fork servers are used on Linux only")
def test_a_process_that_stays_after_a_replay_is_told_once_and_stop_ends_it(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(TRAIN)
    script.write(TRAIN + '            relive.log("first", total[0])\n')
    staying = {"RELIVE_WARM_SECONDS": "60"}

    first = script.relive("replay", "first", "--yes", env=staying)
    told = re.search(r"starts at once \(process (\d+)", first.stderr)
    assert told is not None, first.stderr
    warm = int(told[1])
    assert warm in {process.pid for process in find_warm_processes()}
    second = script.relive("replay", "first", "--yes", "--again", env=staying)
    name = Path(f"/proc/{warm}/comm").read_text().strip()
    # Those of the developer stay.
    monkeypatch.setattr(
        warm_processes, "find_warm_processes", lambda: [one for one in find_warm_processes() if one.pid == warm]
    )
    stopped = CliRunner().invoke(main, ["stop"])

    assert "`relive stop` ends that" in first.stderr
    assert "relive stop" not in second.stderr
    assert name == "relive-warm"
    assert f"ended process {warm}" in stopped.output
    assert warm not in {process.pid for process in find_warm_processes()}


def test_stop_without_such_processes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_processes, "find_warm_processes", list)

    assert CliRunner().invoke(main, ["stop"]).output == "no process is waiting for the next replay\n"
    assert json.loads(CliRunner().invoke(main, ["stop", "--json"]).output) == {"ended": [], "busy": []}


def test_other_processes_are_not_taken_for_ours() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        found = {process.pid for process in find_warm_processes()}
        other.communicate(b"\n")

    assert not found & {other.pid, os.getpid()}


def test_a_run_of_a_notebook_is_left_out_as_such(script: Script) -> None:
    cell = (
        "import sys, types; sys.modules['ipykernel'] = types.ModuleType('ipykernel');"
        " import relive; relive.log('loss', 1.0)"
    )
    subprocess.run([sys.executable, "-c", cell], cwd=script.project, check=True, timeout=60)
    script.write('import relive\nrelive.log("more", 2.0)\n')

    done = script.relive("replay", "more", "--yes", check=False)

    assert done.returncode == 1
    assert "it was recorded in a notebook" in done.stderr
