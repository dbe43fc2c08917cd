"""A remembered result is what the function would return now: state, files and source are changed, and it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.laws.memo_edits import EDITS, judge_edits
from tests.laws.memo_mutations import STATES, Mutation, mutations, volatile_functions
from tests.laws.memo_worlds import judge

pytest.importorskip("torch")
pytest.importorskip("pandas")

EXAMPLES = mutations()
FEW = 24  # in the default run; the rest is slow


@pytest.mark.parametrize("mutation", EXAMPLES[:: len(STATES) // FEW][:FEW], ids=lambda one: one.name)
def test_what_the_code_reads_is_seen(mutation: Mutation):
    verdict = judge(mutation)

    assert verdict.error == ""
    assert not verdict.stale, verdict.seen


@pytest.mark.long
@pytest.mark.parametrize("mutation", EXAMPLES[: len(STATES)], ids=lambda one: one.name)
def test_every_kind_of_state_is_seen(mutation: Mutation):
    verdict = judge(mutation)

    assert verdict.error == ""
    assert not verdict.stale, verdict.seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_every_kind_of_state_is_seen_however_the_code_reaches_it(seed: int):
    verdicts = [judge(mutation) for mutation in mutations(300, seed=seed)[len(STATES) :]]

    assert [one for one in verdicts if one.error or one.stale] == []


@pytest.mark.parametrize("mutation", volatile_functions(), ids=lambda one: one.name)
def test_what_differs_each_time_is_warned_about(mutation: Mutation):
    verdict = judge(mutation)

    assert verdict.error == ""
    assert not verdict.stale or verdict.warned, verdict.seen


@pytest.mark.long
def test_every_edit_between_two_processes_is_seen(tmp_path: Path):
    stale, needless, inert = judge_edits(tmp_path / "project")

    assert len(EDITS) >= 70
    assert stale == []
    assert needless == []
    assert inert == []
