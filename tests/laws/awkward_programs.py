"""Programs whose state changes in awkward ways, and what becomes of questions that are asked of them later.

A program is recorded, its probes are added to the file, and `relive replay` is asked for each. A twin that had the
probes from the start tells what is right. What a replay says of its values is read in one place: `read_marks`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import relive
from relive.errors import QueryError
from relive.hindsight.plan.cost_model import CostModel
from tests.laws.awkward_source import Awkward, read_programs

PROGRAMS: Mapping[str, Awkward] = {one.name: one for one in read_programs()}
# The questions that once were answered rightly and without a mark: `program.probe`. They have to stay so.
EXACT = frozenset(Path(__file__).with_name("awkward_exact.txt").read_text().split())

Row = tuple[tuple[str, Any], ...]  # the loops that a value stands in, with the values of their columns
GOOD = ("proven", "reproduced")  # the verdicts that a reader may rely on
PATIENCE_S = 100  # a replay of such a program that takes longer hangs
_OWN_COLUMNS = ("project", "run", "tstamp", "version", "filename")
_MARKS = ("unverified", "contradicted", "left out", "nothing to replay", "came out differently", "was not reached",
          "never happened", "could not be restored")  # fmt: skip

# Runs of the same program begin with the same random numbers, and nobody but the interpreter's start knows why.
_START = """
    import os
    if os.environ.get("AWKWARD_START"):
        import random, secrets
        chance = random.Random(int(os.environ["AWKWARD_START"]))
        random.seed(chance.random())
        secrets.randbits = chance.getrandbits
        random._urandom = chance.randbytes
        class Random(random.Random):
            def __init__(self, x=None):
                super().__init__(chance.random() if x is None else x)
        Random.__module__ = "random"  # it stands for the class itself
        random.Random = Random
        try:
            import numpy
        except ImportError:
            pass
        else:
            numpy.random.seed(chance.getrandbits(32))
    """


@dataclass(frozen=True)
class Outcome:
    """What became of one question.

    `right`; `marked`: wrong, or not there, and the reader is told; `wrong`: and the reader is not told; `cautious`:
    right, but told to be in doubt; `hung`: no answer in time; `broken`: the program itself does not do what it should.
    """

    program: str
    probe: str
    kind: str
    why: str = ""

    @property
    def question(self) -> str:
        return f"{self.program}.{self.probe}"


def ask(one: Awkward, patience_s: float = PATIENCE_S) -> list[Outcome]:
    """Record a program, add its probes, ask for each, and compare with the twin."""
    with tempfile.TemporaryDirectory(prefix="awkward-") as name:
        plain, twin = Path(name, "plain", "project"), Path(name, "twin", "project")
        for folder, source in ((plain, one.plain), (twin, one.asked)):
            told = _run(one, folder, source, Path(name), patience_s)
            if told:
                return [Outcome(one.name, probe, "broken", told) for probe in one.probes]
        (plain / "train.py").write_text(one.asked)
        return [
            found
            for question, probes in one.questions.items()
            for found in _asked(one, question, probes, plain, twin, patience_s)
        ]


def _run(one: Awkward, folder: Path, source: str, place: Path, patience_s: float) -> str:
    """Run a program for real; returns why that failed, or nothing."""
    folder.mkdir(parents=True)
    for path, text in {**one.files, "train.py": source}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    search = os.pathsep.join(filter(None, [str(make_starting(place)), os.environ.get("PYTHONPATH")]))
    env = {**_environment(), "PYTHONPATH": search, "RELIVE_EVERY": "1", **one.env}
    how = ["-m", "relive", "run"] if one.is_hands_free else []
    try:
        done = subprocess.run(
            [sys.executable, *how, "train.py"], cwd=folder, env=env, capture_output=True, text=True, check=False,
            timeout=patience_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it takes longer than {patience_s} s"
    return "" if (done.returncode != 0) == one.ends_badly else f"{done.returncode}: {done.stderr[-800:]}"


def make_starting(place: Path) -> Path:
    """A folder for PYTHONPATH, by which AWKWARD_START=N in the environment fixes the random numbers of a run."""
    folder = place / "starting"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(textwrap.dedent(_START))
    return folder


def _environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("RELIVE_")}
    return {**kept, "RELIVE_SELF_CHECK": "never", "RELIVE_WARM_SECONDS": "0", "OMP_NUM_THREADS": "1", "COLUMNS": "200",
            "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip


def _asked(
    one: Awkward, question: str, probes: list[str], plain: Path, twin: Path, patience_s: float
) -> list[Outcome]:  # fmt: skip
    # These programs run in no time, so that no checkpoint would be worth its restore: here it costs nothing.
    free = {"restore_s": [0.0], "first_restore_s": [0.0], "bytes_per_s": [1e30]}
    (plain / ".relive" / "costs.json").write_bytes(msgspec.json.encode(CostModel(readings=free)))
    words = ["replay", *probes, *([f"epoch >= {one.late}"] if question == "late" else []), "--yes", "--guesses"]
    try:
        done = _relive(plain, *words, patience_s=patience_s)
    except subprocess.TimeoutExpired:
        return [Outcome(one.name, probe, "hung", f"no answer in {patience_s} s") for probe in probes]
    return [_compared(one, question, probe, plain, twin, done) for probe in probes]


def _compared(
    one: Awkward, question: str, probe: str, plain: Path, twin: Path, replay: subprocess.CompletedProcess[str]
) -> Outcome:
    truth, got = read_values(twin, probe), read_values(plain, probe)
    asked = {row: value for row, value in truth.items() if question != "late" or dict(row)["epoch"] >= one.late}
    wanted = {row: value for row, value in asked.items() if not _is_last(one, row, truth)}
    return judge(one.name, probe, wanted, truth, got, read_marks(plain, probe, replay), replay.stdout + replay.stderr)


def _is_last(one: Awkward, row: Row, truth: Mapping[Row, Any]) -> bool:
    """Of a run that died, whether this is in the iteration it did not finish: then nobody has to answer it."""
    return one.ends_badly and bool(row) and dict(row)["epoch"] == max(dict(other)["epoch"] for other in truth)


def judge(
    program: str, probe: str, wanted: Mapping[Row, Any], truth: Mapping[Row, Any], got: Mapping[Row, Any],
    marks: Mapping[Row | None, bool], told: str = "",
) -> Outcome:  # fmt: skip
    """Compare values with the truth. `marks`: whether a value is marked; under `None`, whether the replay is."""
    told = " | ".join(told.strip().splitlines()[-4:])[-400:]
    is_told = marks.get(None, False)
    wrong = {row for row, value in got.items() if not _is_same(truth.get(row, _NEVER), value)}
    missing = set(wanted) - set(got)
    first = next(iter(sorted(wrong | missing, key=repr)), None)
    why = "" if first is None else f"{first}: {got.get(first, 'nothing')!r} for {truth.get(first, _NEVER)!r}; {told}"
    if any(not marks.get(row, is_told) for row in wrong) or (missing and not is_told):
        return Outcome(program, probe, "wrong", why)
    if wrong or missing:
        return Outcome(program, probe, "marked", why)
    is_doubted = any(marks.get(row, is_told) for row in wanted) or (not wanted and is_told and bool(got))
    return Outcome(program, probe, "cautious" if is_doubted else "right", told if is_doubted else "")


_NEVER = "what never happened"


def _is_same(one: Any, other: Any) -> bool:
    """To the last bit; a column that has gaps holds whole numbers as floats."""
    is_number = isinstance(one, int | float) and isinstance(other, int | float)
    return one == other if is_number and one == one else repr(one) == repr(other)


def read_values(folder: Path, name: str) -> dict[Row, Any]:
    """The values of a column as a table shows them, by the loops they stand in."""
    return {_loops(row, name): row[name] for row in _table(folder, name)}


def read_marks(folder: Path, name: str, replay: subprocess.CompletedProcess[str]) -> dict[Row | None, bool]:
    """Whether a reader is told to doubt a value: by its verdict if it has one, else by what the replay said."""
    told = replay.stdout + replay.stderr
    marks: dict[Row | None, bool] = {None: replay.returncode != 0 or any(word in told for word in _MARKS)}
    for row in _table(folder, name):
        verdict = _verdict(row, name)
        if verdict is not None:
            marks[_loops(row, name)] = verdict not in GOOD
    return marks


def _verdict(row: Mapping[str, Any], name: str) -> str | None:
    source = row.get(f"{name}_source")
    if isinstance(source, str) and source.startswith("replay"):  # "replay 3, proven"
        return source.rpartition(", ")[2]
    verdict = row.get(f"{name}_verdict")
    return None if verdict is None else str(verdict)


def _loops(row: Mapping[str, Any], name: str) -> Row:
    return tuple((key, int(value)) for key, value in row.items()
                 if key not in _OWN_COLUMNS and not key.startswith(name) and value == value)  # fmt: skip


def _table(folder: Path, name: str) -> list[dict[str, Any]]:
    try:
        frame = relive.dataframe(name, sources=True, home=folder / ".relive")
    except QueryError:  # nothing has that name
        return []
    rows = frame.to_dict("records")
    return [row for row in rows if row[name] is not None and (row[name] == row[name] or row[f"{name}_source"])]


def _relive(folder: Path, *words: str, patience_s: float) -> subprocess.CompletedProcess[str]:
    """Ask relive; when it takes too long, it ends, and whatever it has started ends with it."""
    with subprocess.Popen(
        [sys.executable, "-m", "relive", *words], cwd=folder, env=_environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _end_workers(folder)
            process.communicate()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _end_workers(folder: Path) -> None:
    """End the workers of a killed replay: they have sessions of their own, and are given files of this folder."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if bytes(folder) in command.read_bytes():
                os.kill(int(command.parent.name), signal.SIGKILL)
