"""Damage is always noticed: a changed, truncated or missing file of a home never gives a silently wrong answer."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.laws import damage

EXAMPLES = int(os.environ.get("LAW_EXAMPLES") or 300)
SEED = int(os.environ.get("LAW_SEED") or 0)
TALLY = os.environ.get("LAW_TALLY")  # a file that gets a line of JSON for each example
Example = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    with damage.example_home() as made:
        yield made


def assert_noticed(example: Example, kind: str, seed: int, scratch: Path) -> damage.Outcome:
    home, whole = example
    outcome = damage.try_damage(home, whole, kind, seed, scratch)
    if TALLY:
        with open(TALLY, "a") as file:
            file.write(json.dumps({"kind": kind, "seed": seed, "file": outcome.file, "way": outcome.way,
                                   "verdict": outcome.verdict, "errors": outcome.errors}) + "\n")  # fmt: skip
        return outcome
    assert outcome.verdict in ("noticed", "repaired", "harmless"), outcome
    return outcome


def test_an_undamaged_home_gives_no_alarm(example: Example, tmp_path: Path) -> None:
    home, whole = example
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    outcome = damage.compare(copy, whole, "none", "", "")

    assert set(outcome.answers.values()) == {damage.UNCHANGED}, outcome
    assert not outcome.doctor
    assert not outcome.was_rebuilt


@pytest.mark.parametrize("kind", damage.KINDS)
def test_damage_is_noticed(example: Example, tmp_path: Path, kind: str) -> None:
    for seed in range(2):
        assert_noticed(example, kind, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_damage_is_noticed_many_times(example: Example, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for _ in range(EXAMPLES):
        assert_noticed(example, chance.choice(list(damage.KINDS)), chance.randrange(1 << 40), tmp_path)
    test_an_undamaged_home_gives_no_alarm(example, tmp_path)


@pytest.mark.parametrize(
    ("file", "table"), [("index/catalog.sqlite", b"summaries"), ("fingerprints.sqlite", b"sealed_files")]
)
def test_a_database_whose_errors_are_no_text_is_noticed(
    example: Example, tmp_path: Path, file: str, table: bytes
) -> None:
    home, whole = example
    copy = Path(shutil.copytree(home, tmp_path / "copy", symlinks=True))
    content = (copy / file).read_bytes()
    assert table in content
    # SQLite names what it can't parse.
    broken = content.replace(table, table[:4] + b"\xcf" + table[5:]).replace(b"CREATE TABLE", b"CREAXE TABLE")
    (copy / file).write_bytes(broken)

    outcome = damage.compare(copy, whole, "catalog", file, "overwrite")

    assert outcome.verdict in ("noticed", "repaired", "harmless"), outcome
