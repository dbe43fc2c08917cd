"""Replay gives what logging then would have given, bit for bit, or says that it can't."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
from relive.hindsight.plan.cost_model import CostModel
from relive.store import Home
from relive.store.catalog import Index
from relive.store.chunks import list_kept_checkpoints
from relive.store.chunks.tombstones import drop_checkpoints
from relive.store.journal import parse_run
from tests.laws.awkward_programs import make_starting

if TYPE_CHECKING:
    from relive.hindsight import Answer
    from tests.laws.programs import Context, Program

    Values = dict[Context, list[Any]]


def _beside(name: str) -> Any:
    """A module that lies beside this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


_beside("program_parts")
programs = _beside("programs").programs


# Hypothesis warns of long texts, and here a warning is an error: it would stand in place of what went wrong.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


class BrokenProgram(Exception):
    """A program that fails by itself: it says nothing about replay."""


def run(program: Program, place: Path, home: Path, files: Mapping[str, str]) -> None:
    """Run a program for real. One that ends with an error of its own has to do so in the same way each time."""
    folder = place / "project"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RELIVE_")}
    env |= {"RELIVE_HOME": str(home), "RELIVE_EVERY": "1", "OMP_NUM_THREADS": "1", **program.env}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(make_starting(place)), env.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *program.how, "train.py"], cwd=folder, env=env, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    if done.returncode and not program.dies and "Boom" not in done.stderr.splitlines()[-1]:
        raise BrokenProgram(done.stderr + files["train.py"])


@contextlib.contextmanager
def library(program: Program, place: Path) -> Iterator[None]:
    """The files of a library, where scripts and the workers that replay them find it."""
    folder = place / "lib" / "site-packages"
    folder.mkdir(parents=True)
    for name, text in program.outside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        if program.outside:
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
        yield


def thin(home: Path, share: float, seed: int) -> None:
    """Give up some of the checkpoints, as a budget would."""
    place, chance = Home(home), random.Random(seed)
    for run_id in place.run_ids():
        rows = list_kept_checkpoints(place.run_folder(run_id), parse_run(place, run_id))
        drop_checkpoints(place.run_folder(run_id), [row for row in rows if chance.random() < share])


def values(home: Path, name: str = "probe") -> dict[Context, list[Any]]:
    """Everything logged under a name, by its context and in order, to the last bit."""
    index = Index(Home(home))
    points = index.points(index.runs(), [name])
    index.close()
    found: dict[Context, list[Any]] = {}
    texts = points.text if points.text is not None else [None] * len(points)
    for at, (path, dims) in enumerate(zip(points.path.tolist(), points.dims.tolist(), strict=True)):
        context = tuple(zip(points.paths[path], dims, strict=False))
        number = float(points.value[at])
        exact = texts[at] if texts[at] is not None else "nan" if number != number else number.hex()
        found.setdefault(context, []).append((int(points.kind[at]), exact))
    return found


def check(program: Program, share: float, seed: int, workers: int) -> str:
    """Record, give up some checkpoints, ask, and compare; gives what the replay says of itself."""
    with tempfile.TemporaryDirectory() as name, library(program, Path(name)):
        home = Home(Path(name) / "project" / ".relive")
        run(program, Path(name), home.path, program.plain)
        twin = Path(name) / "twin"
        twin.mkdir()
        run(program, twin, twin / "home", program.asked)
        expected = values(twin / "home")
        for path, text in program.asked.items():
            (home.path.parent / path).write_text(text)
        thin(home.path, share, seed)
        # These programs run in no time, so that no checkpoint would be worth its restore: here it costs nothing.
        free = {"restore_s": [0.0], "first_restore_s": [0.0], "bytes_per_s": [1e30]}
        (home.path / "costs.json").write_bytes(msgspec.json.encode(CostModel(readings=free)))
        with ReplaySession(home) as session, patience():
            plan = plan_replay(session, Question(("probe",), program.where, workers=workers))
            ways = {case.plan.resume for case in plan.cases}
            found = execute_plan(session, plan, watch=lambda _tasks: None)
        got = values(home.path)
    return judge(program, expected, got, found, ways)


def judge(program: Program, expected: Values, got: Values, found: Answer, ways: set[str]) -> str:
    """Right, or marked; gives what the replay says of itself."""
    # Of a run that died, nobody has to know how far it came, but what it did not do must not be told.
    wanted = {context for context in expected if program.wants(context) and not program.dies}
    (one,) = found.runs or [None]
    if one is None:
        assert not wanted or program.part is not None, (found.refusals, wanted)
        return "refused" if wanted else "nothing to replay"
    if program.part is None and not program.dies:
        assert not one.missing, one.missing
    happened = all(
        logged == (expected.get(context, [])[: len(logged)] if program.dies else expected.get(context))
        for context, logged in got.items()
    )
    is_right = wanted <= set(got) and happened
    is_marked = not one.is_verified or (happened and bool(one.missing))
    assert is_right or is_marked, (got, {c: v for c, v in expected.items() if c in wanted}, one)
    way = ", from the start" if "from the start" in ways else ""
    return f"{one.verdict}{way}{'' if is_right else ', flagged'}"


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Where many are counted, one that hangs is given up."""
    if not COUNTS:
        yield
        return

    def give_up(*_: object) -> None:
        raise TimeoutError("the replay hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# How often the many are tried: LAW_EXAMPLES=1000, with --hypothesis-seed=N for other ones than the last time.
# LAW_TALLY=FILE gets a line for each, of what the replay said of itself. LAW_COUNTS=1 goes on after a failure.
MANY = int(os.environ.get("LAW_EXAMPLES") or 300)
TALLY = os.environ.get("LAW_TALLY")
COUNTS = bool(os.environ.get("LAW_COUNTS"))
PATIENCE_S = 150
QUIET = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)


def check_and_tell(program: Program, share: float, seed: int, workers: int) -> None:
    outcome, why = "failed", ""
    try:
        outcome = check(program, share, seed, workers)
    except (AssertionError, BrokenProgram, TimeoutError) as error:
        outcome = {AssertionError: "wrong", BrokenProgram: "broken"}.get(type(error), "hung")
        why = str(error)
        if not COUNTS:
            raise
    finally:
        event(outcome)
        if TALLY:
            with open(TALLY, "a") as file:
                told = "" if outcome in ("proven", "reproduced", "failed") else repr(program)
                asked = {"share": share, "seed": seed, "workers": workers}
                file.write(json.dumps({"outcome": outcome, "why": why, **asked, "program": told}) + "\n")


@pytest.mark.long
@settings(QUIET, max_examples=6)
@given(programs(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 9), st.sampled_from([1, 2]))
def test_replayed_values_are_those_of_a_run_that_had_the_statement(program, share, seed, workers):
    check_and_tell(program, share, seed, workers)


@pytest.mark.slow
@settings(QUIET, max_examples=MANY, print_blob=True)
@given(programs(), st.sampled_from([0.0, 0.0, 0.2, 0.5, 1.0]), st.integers(0, 99), st.sampled_from([2, 3, 1]))
def test_many_replayed_values_are_those_of_a_run_that_had_the_statement(program, share, seed, workers):
    check_and_tell(program, share, seed, workers)
