"""How long people wait: for `import relive`, for the first verb of a script, for `relive runs` with 1,000 runs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.filling import fill_home
from bench.measuring import clean_environment, median_s, project, report, run_script

# What a script loses by being recorded at all: its first verb, and what is left to do when it ends.
FIRST_VERB = """
import atexit, json, os, time
import numpy

def now():
    return time.perf_counter(), time.thread_time(), time.process_time()

def since(begun):
    return [end - start for start, end in zip(begun, now())]

took = []

@atexit.register  # before relive's own, so that it comes after that
def tell():
    took.append(since(took.pop()))
    names = "wall_s", "thread_cpu_s", "cpu_s"
    sums = {name: sum(part[at] for part in took) for at, name in enumerate(names)}
    open(os.environ["BENCH_RESULT"], "w").write(json.dumps(sums))

begun = now()
import relive
relive.log("loss", 1.0)
took.append(since(begun))
begun = now()
time.sleep(0.3)  # the training; what our threads do meanwhile counts as CPU time
relive.log("loss", 0.5)
took.append([0, 0, time.process_time() - begun[2]])
atexit.register(lambda: took.append(now()))
"""


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
    goals = {"import_s": "< 0.1", "runs_s": "< 0.3", "second_version_s": "tens of ms", "first_verb_wall_s": "< 0.04"}
    report("start_up", goals, **numbers, **_first_verb(), second_version_s=_second_version_s())


def _median_s(command: list[str], repeat: int = 9) -> float:
    env = clean_environment()

    def run() -> None:
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)

    if repeat > 1:
        run()  # the first one writes the .pyc files
    return median_s(run, repeat)


def _first_verb(repeat: int = 15) -> dict[str, float]:
    """What `import relive`, the first verb and the end of the script take together, in a project seen before."""
    with project(FIRST_VERB, git=True) as folder:
        for _ in range(2):  # writes the .pyc files, and the version
            run_script(folder)
        times = [run_script(folder) for _ in range(repeat)]
    return {f"first_verb_{name}": statistics.median(time[name] for time in times) for name in times[0]}


def _second_version_s() -> float:
    from relive.store.versions import code_versions

    with project("print('hello')", git=True) as folder:
        home = folder / ".relive"
        home.mkdir()
        (home / ".gitignore").write_text("*\n")
        times = []
        for _ in range(6):
            begun = time.perf_counter()
            code_versions.take(folder, home=home)
            times.append(time.perf_counter() - begun)
        return sorted(times[1:])[2]


if __name__ == "__main__":
    main()
