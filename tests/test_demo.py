"""The demo tells its story: every question is answered, and every value is proven."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

STORY = Path(__file__).parents[1] / "examples" / "demo" / "story.py"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_answers_its_questions_and_ends_with_a_picture(tmp_path: Path):
    pytest.importorskip("torch")
    env = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    command = [sys.executable, str(STORY), str(tmp_path / "demo"), "3"]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    answers = re.findall(r"^(\d) runs?, (\d+) values? added: (\d+) proven;", done.stdout, flags=re.MULTILINE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(answers) == 5, done.stdout
    assert all(added == proven for _, added, proven in answers)
    assert answers[-1][0] == "3"
    assert "lr=0.003 epochs=3  killed" in done.stdout
    assert '+        relive.log("test_acc", (net(images)' in done.stdout
    assert (tmp_path / "demo.svg").read_text().count("<polyline") == 3
