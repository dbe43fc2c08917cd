"""A replay that was resumed does not take a file for what it was if the run changed it later."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from relive.hindsight.workers.confinement.write_guard import is_renewed


def reported(tmp_path: Path, *, changed_s: float, restored_s: float | None, inside: bool = False) -> str:
    """Reads a file in a process of its own, and returns what is reported; the run ended at second 200."""
    file = tmp_path / "best.txt"
    file.write_text("1")
    os.utime(file, (changed_s, changed_s))
    script = f"""
    from relive.hindsight.workers.unheld_state.stale_reads import StaleReads
    inside = [{str(tmp_path if inside else tmp_path / "project")!r}]
    StaleReads(inside, lambda: {restored_s}, 200.0, print).start()
    open({str(file)!r}).read()
    """
    code = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_file_that_the_run_changed_after_the_checkpoint_is_reported(tmp_path: Path) -> None:
    assert "which the run changed after" in reported(tmp_path, changed_s=150.0, restored_s=100.0)


@pytest.mark.parametrize(
    ("changed_s", "restored_s", "inside"),
    [(50.0, 100.0, False), (300.0, 100.0, False), (150.0, None, False), (150.0, 100.0, True)],
    ids=["changed before", "changed after the run", "nothing was restored", "of the project"],
)
def test_other_files_are_read_as_they_are(tmp_path: Path, changed_s: float, restored_s: float | None, inside: bool):
    assert not reported(tmp_path, changed_s=changed_s, restored_s=restored_s, inside=inside)


def test_files_of_the_system_and_compiled_code_are_no_files_of_the_run(tmp_path: Path) -> None:
    assert is_renewed("/proc/self/status")
    assert is_renewed(str(tmp_path / "__pycache__" / "train.cpython-311.pyc"))
    assert not is_renewed(str(tmp_path / "best.pt"))
