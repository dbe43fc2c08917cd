"""How long people wait: for `import relive`, for `relive runs` with 1,000 runs, for the version of a second run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.filling import fill_home
from bench.measuring import clean_environment, median_s, project, report


def main() -> None:
    """Each command is a new process; the time of an empty Python is given to compare with."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        fill_home(home, runs=1_000, steps=100, names=["loss", "acc"])
        runs = [sys.executable, "-m", "relive", "runs", "--home", str(home)]
        first_s = _median_s(runs, repeat=1)
        numbers = {
            "python_s": _median_s([sys.executable, "-c", "pass"]),
            "import_python_s": _median_s([sys.executable, "-c", "import relive"]),
            "runs_first_s": first_s,
            "runs_s": _median_s(runs),
        }
    numbers["import_s"] = numbers.pop("import_python_s") - numbers["python_s"]
    goals = {"import_s": "< 0.1", "runs_s": "< 0.3", "second_version_s": "tens of ms"}
    report("start_up", goals, **numbers, second_version_s=_second_version_s())


def _median_s(command: list[str], repeat: int = 9) -> float:
    env = clean_environment()

    def run() -> None:
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)

    if repeat > 1:
        run()  # the first one writes the .pyc files
    return median_s(run, repeat)


def _second_version_s() -> float:
    from relive.store import versions

    with project("print('hello')", git=True) as folder:
        home = folder / ".relive"
        home.mkdir()
        (home / ".gitignore").write_text("*\n")
        times = []
        for _ in range(6):
            begun = time.perf_counter()
            versions.take(folder, home=home)
            times.append(time.perf_counter() - begun)
        return sorted(times[1:])[2]


if __name__ == "__main__":
    main()
