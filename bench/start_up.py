"""How long people wait: for `import relive`, for the first verb of a script, for commands with 1,000 runs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.filling import fill_home
from bench.measuring import clean_environment, median_s, project, report, run_script

RELIVE = "import sys; sys.argv[0] = 'relive'; from relive.cli import main; main()"

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


# What each command may take: as many times as long as an empty Python, or as one that imports duckdb. On a quiet
# machine these are 0.02 and 0.15 s, so that `relive --help` has 0.15 s, `runs` 0.25 s, `sql` and `dataframe` 0.6 s.
REFERENCES = {"python": ["-c", "pass"], "duckdb": ["-c", "import duckdb"]}
COMMANDS = {
    "help": (["--help"], "python", 7.5),
    "runs": (["runs"], "python", 12.5),
    "sql": (["sql", "select count(*) from runs"], "duckdb", 4.0),
    "dataframe": (["dataframe", "loss", "--where", "step >= 98"], "duckdb", 4.0),
    "complete_command": (["ru"], "python", 7.5),
    "complete_run": (["show", ""], "python", 12.5),
}
ROUNDS = 9


def main() -> None:
    """Each command is a new process; those of a round are started one after the other, so that load hits all alike."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        fill_home(home, runs=1_000, steps=100, names=["loss", "acc"])
        runs = [sys.executable, "-m", "relive", "runs", "--home", str(home)]
        numbers = {"runs_first_s": _median_s(runs, repeat=1)}
        took = _rounds(home)
    numbers |= {f"{what}_s": statistics.median(times) for what, times in took.items()}
    numbers["import_s"] = numbers.pop("import_python_s") - numbers["python_s"]
    ratios = {
        f"{what}_per_{reference}": statistics.median(
            time / other for time, other in zip(took[what], took[reference], strict=True)
        )
        for what, (_, reference, _) in COMMANDS.items()
    }
    goals = {f"{what}_per_{reference}": f"< {most:g}" for what, (_, reference, most) in COMMANDS.items()}
    goals |= {"import_s": "< 0.1", "second_version_s": "tens of ms", "first_verb_wall_s": "< 0.04"}
    report("start_up", goals, **numbers, **ratios, **_first_verb(), second_version_s=_second_version_s())


def _rounds(home: Path) -> dict[str, list[float]]:
    """The times of each command and reference, round by round; the first one, which writes .pyc files, is left out."""
    commands = {what: [sys.executable, *words] for what, words in REFERENCES.items()}
    commands["import_python"] = [sys.executable, "-c", "import relive"]
    took: dict[str, list[float]] = {what: [] for what in (*commands, *COMMANDS)}
    env = clean_environment() | {"RELIVE_HOME": str(home)}
    for number in range(ROUNDS + 1):
        for what in took:
            command, variables = commands.get(what), env
            if command is None:
                words = COMMANDS[what][0]
                command = [sys.executable, "-c", RELIVE, *words]
                if what.startswith("complete_"):
                    command, variables = command[:3], env | _completing(words)
            begun = time.perf_counter()
            subprocess.run(command, env=variables, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if number:
                took[what].append(time.perf_counter() - begun)
    return took


def _completing(words: list[str]) -> dict[str, str]:
    """What bash sets while it completes the last of some words."""
    line = " ".join(["relive", *words])
    return {"_RELIVE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}


def _median_s(command: list[str], repeat: int) -> float:
    env = clean_environment()
    return median_s(lambda: subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL), repeat)


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
