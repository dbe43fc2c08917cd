"""Replay gives what logging then would have given, bit for bit, or says that it can't."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
from relive.hindsight.plan.segments import Costs
from relive.store import Home
from relive.store.catalog import Index
from relive.store.chunks import list_kept_checkpoints
from relive.store.chunks.tombstones import drop_checkpoints
from relive.store.journal import parse_run

if TYPE_CHECKING:
    from tests.laws.programs import Context, Program


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


def run(folder: Path, home: Path, files: Mapping[str, str], how: Sequence[str] = ()) -> None:
    """Run a program for real. One that ends with an error of its own has to do so in the same way each time."""
    for name, text in files.items():
        (folder / name).write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RELIVE_")}
    env |= {"RELIVE_HOME": str(home), "RELIVE_EVERY": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *how, "train.py"], cwd=folder, env=env, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 or "Boom" in done.stderr.splitlines()[-1], done.stderr + files["train.py"]


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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "project"
        folder.mkdir()
        run(folder, folder / ".relive", program.plain, program.how)
        run(folder, Path(name) / "reference", program.asked, program.how)
        expected = values(Path(name) / "reference")
        thin(folder / ".relive", share, seed)
        home = Home(folder / ".relive")
        # These programs run in no time, so that no checkpoint would be worth its restore: here it costs nothing.
        (home.path / "costs.json").write_bytes(msgspec.json.encode(Costs(restore_s=0.0, bytes_per_s=1e30)))
        with ReplaySession(home) as session:
            plan = plan_replay(session, Question(("probe",), program.where, workers=workers))
            ways = {case.plan.resume for case in plan.cases}
            found = execute_plan(session, plan, watch=lambda _tasks: None)
        got = values(home.path)

    wanted = {context for context in expected if program.wants(context)}
    (one,) = found.runs or [None]
    if one is None:
        assert not wanted, (found.refusals, wanted)
        return "nothing to replay"
    assert not one.missing, one.missing
    is_right = wanted <= set(got) and all(expected.get(context) == logged for context, logged in got.items())
    assert is_right or not one.is_verified, (got, {c: v for c, v in expected.items() if c in wanted}, one)
    way = ", from the start" if "from the start" in ways else ""
    return f"{one.verdict}{way}{'' if is_right else ', flagged'}"


# How often the many are tried: LAW_EXAMPLES=1000, with --hypothesis-seed=N for other ones than the last time.
# LAW_TALLY=FILE gets a line for each, of what the replay said of itself.
MANY = int(os.environ.get("LAW_EXAMPLES") or 300)
TALLY = os.environ.get("LAW_TALLY")
QUIET = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)


def check_and_tell(program: Program, share: float, seed: int, workers: int) -> None:
    outcome = "failed"
    try:
        outcome = check(program, share, seed, workers)
    finally:
        event(outcome)
        if TALLY:
            with open(TALLY, "a") as file:
                told = "" if outcome in ("proven", "reproduced", "failed") else repr(program)
                file.write(json.dumps({"outcome": outcome, "program": told}) + "\n")


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
