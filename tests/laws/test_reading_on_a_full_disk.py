"""On a disk that is full, or can't be written, a question has an answer, or an error that says what to free."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import relive
from relive.errors import DiskTrouble
from tests.conftest import Script

TRAIN = """
import numpy as np
import relive

weights = np.zeros(100)
with relive.checkpointing(weights=weights, every=1):
    for epoch in relive.loop("epoch", range(4)):
        weights += epoch
        relive.log("loss", float(weights.sum()))
"""
ASKING = TRAIN + '        relive.log("mean", float(weights.mean()))\n'
ANSWERED = (
    ("runs",), ("show", "last"), ("dataframe", "loss"), ("sql", "select count(*) from logs"), ("leaderboard", "loss"),
    ("doctor",), ("doctor", "--rebuild"), ("checkpoints", "last"),
)  # fmt: skip
TOLD = (("replay", "mean", "--yes"), ("promote", "last", "model", "--force"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "relive-test", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filling").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(disk).free < 4096


@pytest.mark.parametrize(
    "state",
    [
        "full, index not current",
        pytest.param("full, not indexed", marks=pytest.mark.long),
        pytest.param("read-only", marks=pytest.mark.long),
    ],
)
def test_a_question_is_answered_or_says_what_to_free(
    state: str, script: Script, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = disk / "home"
    monkeypatch.setenv("RELIVE_HOME", str(home))
    script(TRAIN)
    if state != "full, not indexed":
        script.relive("runs")
        script(TRAIN)
    script.write(ASKING)
    if state == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    else:
        fill(disk)

    answers = [script.relive(*question, check=False) for question in ANSWERED]
    told = [script.relive(*question, check=False) for question in TOLD]

    for question, answer in zip(ANSWERED, answers, strict=True):
        assert answer.returncode == 0, (question, answer.stderr)
    for question, answer in zip(TOLD, told, strict=True):
        assert answer.returncode == 1, question
        assert str(disk) in answer.stderr.splitlines()[-1]
        assert ("can't be written" if state == "read-only" else "is full; free") in answer.stderr
    assert not any("Traceback" in answer.stderr for answer in (*answers, *told))
    assert len(relive.dataframe("loss", home=home)) % 4 == 0
    with pytest.raises(DiskTrouble, match=str(disk)):
        relive.replay("mean", home=home)
