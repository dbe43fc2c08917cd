"""Replay gives what logging then would have given, bit for bit, or says that it can't."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import relive
from relive.store import Home, Index, kept_checkpoints, parse_run
from relive.store.tombstones import drop

if TYPE_CHECKING:
    from tests.laws.programs import Program


def _beside(name: str) -> Any:
    """A module that lies beside this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


programs = _beside("programs").programs


def run(folder: Path, home: Path, text: str) -> None:
    (folder / "train.py").write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RELIVE_")}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=folder, env={**env, "RELIVE_HOME": str(home)}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + text


def thin(home: Path, share: float, seed: int) -> None:
    """Give up some of the checkpoints, as a budget would."""
    place, chance = Home(home), random.Random(seed)
    for run_id in place.run_ids():
        rows = kept_checkpoints(place.run_folder(run_id), parse_run(place, run_id))
        drop(place.run_folder(run_id), [row for row in rows if chance.random() < share])


def values(home: Path, name: str = "probe") -> list[tuple]:
    """Everything logged under a name, with its context, in order."""
    index = Index(Home(home))
    entries = index.runs()
    points = index.points(entries, [name])
    index.close()
    return [
        (points.paths[p], tuple(d[: len(points.paths[p])]), v.hex() if v == v else "nan")
        for p, d, v in zip(points.path.tolist(), points.dims.tolist(), points.value.tolist(), strict=True)
    ]


def check(program: Program, share: float, seed: int, workers: int) -> str:
    """Record, give up some checkpoints, ask, and compare; gives what the replay says of itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "project"
        folder.mkdir()
        run(folder, folder / ".relive", program.plain)
        run(folder, Path(name) / "reference", program.asked)
        expected = values(Path(name) / "reference")
        thin(folder / ".relive", share, seed)
        found = relive.replay("probe", workers=workers, home=folder / ".relive")
        (answer,) = found.runs or [None]
        got = values(folder / ".relive") if answer is not None and answer.added else []

        if answer is None:
            assert not expected, (found.refusals, expected)
            return "refused"
        assert not answer.missing, answer.missing
        assert got == expected or answer.verdict == "unverified", (got, expected, answer)
        return f"{answer.verdict}{' wrong' if got != expected else ''}"


QUIET = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)


@pytest.mark.long
@settings(QUIET, max_examples=6)
@given(programs(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 9), st.sampled_from([1, 2]))
def test_replayed_values_are_those_of_a_run_that_had_the_statement(program, share, seed, workers):
    check(program, share, seed, workers)


@pytest.mark.slow
@settings(QUIET, max_examples=300)
@given(programs(), st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.integers(0, 99), st.sampled_from([1, 2, 3]))
def test_many_replayed_values_are_those_of_a_run_that_had_the_statement(program, share, seed, workers):
    check(program, share, seed, workers)
