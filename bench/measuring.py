"""How benchmarks measure and report: medians, scratch folders, scripts in projects of their own, one JSON line."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULT = "BENCH_RESULT"  # the file into which a measured script writes its JSON


def report(name: str, goals: dict[str, str], **numbers: Any) -> None:
    """Print the result of a benchmark as one line of JSON."""
    rounded = {key: _rounded(value) for key, value in numbers.items()}
    print(json.dumps({"bench": name, **rounded, "goals": goals}), flush=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def median_s(work: Callable[[], Any], repeat: int = 5) -> float:
    """The median time of some work, in seconds."""
    return statistics.median(once_s(work) for _ in range(repeat))


def once_s(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@contextlib.contextmanager
def project(source: str, *, git: bool = False) -> Iterator[Path]:
    """A temporary folder with a script `train.py`, in a git repository of its own if asked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(textwrap.dedent(source))
        if git:
            identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
            for command in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-qm", "begin"]):
                subprocess.run(["git", *command], cwd=folder, check=True)
        yield folder


def run_script(folder: Path, *args: str, **environment: str) -> Any:
    """Run train.py in its folder, silently; gives the JSON that it wrote to the file named by BENCH_RESULT, if any."""
    result = folder / "bench-result.json"
    result.unlink(missing_ok=True)
    env = {**clean_environment(), **environment, RESULT: str(result)}
    done = subprocess.run(
        [sys.executable, "train.py", *args], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"train.py failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(result.read_text()) if result.exists() else None


def clean_environment() -> dict[str, str]:
    """The environment without what would slow start-up down or steer relive."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    env = {key: text for key, text in os.environ.items() if key not in dropped and not key.startswith("RELIVE_")}
    identity = {"GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@localhost"}
    return {**env, **identity, "GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@localhost"}
