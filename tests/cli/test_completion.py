"""Laws of completion: a shell gets commands, options, runs and columns, and never an error."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Script

TRAIN = """
    import relive

    relive.arg("lr", 0.1)
    relive.log("loss", 1.0)
"""


@pytest.fixture(scope="module")
def recorded(shared_script: Script) -> Script:
    shared_script(TRAIN)
    shared_script.write(TRAIN + '    relive.log("grad_norm", 2.0)\n')
    return shared_script


def completed(script: Script, line: str) -> list[str]:
    """What bash gets for the last word of a line."""
    words = line.split(" ")
    asking = {"_RELIVE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    # The console script, since `python -m relive` has another name.
    program = "import sys; sys.argv[0] = 'relive'; from relive.cli import main; main()"
    done = script._finish(["-c", program], check=True, timeout=60, env=asking)
    assert done.stderr == ""
    return [row.partition(",")[2] for row in done.stdout.splitlines() if row]


def test_commands_are_completed(recorded: Script) -> None:
    assert completed(recorded, "relive ru") == ["run", "runs"]


def test_options_are_completed(recorded: Script) -> None:
    assert completed(recorded, "relive gc --d") == ["--dry-run"]


def test_runs_are_completed(recorded: Script) -> None:
    (run,) = os.listdir(recorded.home / "runs")

    assert completed(recorded, "relive show ") == ["last", "first", run[:8]]
    assert completed(recorded, f"relive diff last {run[:3]}") == [run[:8]]


def test_columns_are_completed(recorded: Script) -> None:
    assert completed(recorded, "relive dataframe l") == ["loss", "lr"]
    assert completed(recorded, "relive dataframe lr lo") == ["loss"]


def test_names_that_scripts_log_are_completed_for_replays(recorded: Script) -> None:
    assert completed(recorded, "relive replay g") == ["grad_norm"]


def test_without_runs_nothing_is_completed_and_no_home_is_made(script: Script) -> None:
    assert completed(script, "relive show ") == []
    assert completed(script, "relive dataframe ") == []
    assert not script.home.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_is_one_that_it_reads(script: Script, shell: str, tmp_path: Path) -> None:
    text = script.relive("completion", shell).stdout

    assert "_RELIVE_COMPLETE" in text
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([program, "-n", str(tmp_path / "script")], check=True, timeout=30)
