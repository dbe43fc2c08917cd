"""Laws of verdicts: they follow from the evidence, and more evidence against a value never improves its verdict."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.hindsight.verdicts import RULES, Agreement, Evidence, Files, Reads, Restored, judge
from relive.model import Verdict, count_words

AGREES, NOTHING, DIFFERS = Agreement
# Each field, its values from the best to the worst.
SCALES = {
    "state": list(Agreement), "values": list(Agreement), "next_state": list(Agreement), "next_value": list(Agreement),
    "reads": list(Reads), "restored": list(Restored), "files": list(Files), "is_seeded": [True, False],
    "own_agrees": [True, False], "is_undisturbed": [True, False],
    "is_same_machine": [True, False],
}  # fmt: skip
EVERY = [Evidence(**dict(zip(SCALES, values, strict=True))) for values in itertools.product(*SCALES.values())]
any_evidence = st.builds(Evidence, **{name: st.sampled_from(values) for name, values in SCALES.items()})


def test_the_scales_cover_all_evidence() -> None:
    assert set(SCALES) == {field.name for field in fields(Evidence)}


def test_one_more_step_against_a_value_never_improves_its_verdict() -> None:
    better = [
        (one, worse)
        for one in EVERY
        for name, scale in SCALES.items()
        if (at := scale.index(getattr(one, name))) + 1 < len(scale)
        and judge(worse := replace(one, **{name: scale[at + 1]})).verdict < judge(one).verdict
    ]

    assert better == []


@given(any_evidence, st.dictionaries(st.sampled_from(list(SCALES)), st.integers(0, 3)))
def test_any_amount_of_evidence_against_a_value_never_improves_its_verdict(one: Evidence, steps: dict) -> None:
    worse = {
        name: SCALES[name][min(SCALES[name].index(getattr(one, name)) + count, len(SCALES[name]) - 1)]
        for name, count in steps.items()
    }

    assert judge(replace(one, **worse)).verdict >= judge(one).verdict


@given(any_evidence)
def test_whatever_differed_before_a_value_contradicts_it(one: Evidence) -> None:
    for wrong in ({"state": DIFFERS}, {"values": DIFFERS}, {"restored": Restored.USED_DIFFERS}):
        assert judge(replace(one, **wrong)).verdict is Verdict.CONTRADICTED


@given(any_evidence)
def test_a_value_is_proven_only_by_state_that_agrees_and_if_it_reads_nothing_unknown(one: Evidence) -> None:
    if judge(one).verdict is Verdict.PROVEN:
        assert AGREES in (one.state, one.next_state)
        assert (one.reads, one.restored, one.is_same_machine) == (Reads.KNOWN, Restored.EXACTLY, True)
        assert DIFFERS not in (one.state, one.values, one.next_state, one.next_value)


@given(any_evidence)
def test_without_anything_that_agrees_a_value_is_marked(one: Evidence) -> None:
    if AGREES not in (one.state, one.values, one.next_state, one.next_value):
        assert judge(one).verdict.is_marked


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (Evidence(), Verdict.UNVERIFIED),
        (Evidence(values=AGREES), Verdict.REPRODUCED),
        (Evidence(next_value=AGREES), Verdict.REPRODUCED),
        (Evidence(state=AGREES), Verdict.PROVEN),
        (Evidence(next_state=AGREES), Verdict.PROVEN),
        (Evidence(state=AGREES, reads=Reads.MAYBE_UNKNOWN), Verdict.REPRODUCED),
        (Evidence(state=AGREES, reads=Reads.UNKNOWN), Verdict.UNVERIFIED),
        (Evidence(state=AGREES, restored=Restored.UNUSED_DIFFERS), Verdict.REPRODUCED),
        (Evidence(state=AGREES, next_state=DIFFERS), Verdict.UNVERIFIED),
        (Evidence(values=AGREES, own_agrees=True, next_value=DIFFERS), Verdict.REPRODUCED),
        (Evidence(state=AGREES, is_same_machine=False), Verdict.REPRODUCED),
        (Evidence(state=AGREES, is_undisturbed=False), Verdict.UNVERIFIED),
        (Evidence(state=AGREES, values=DIFFERS), Verdict.CONTRADICTED),
    ],
)
def test_examples(evidence: Evidence, verdict: Verdict) -> None:
    assert judge(evidence).verdict is verdict


def test_every_rule_decides_something() -> None:
    assert {judge(one).reason for one in EVERY} == {rule.reason for rule in RULES}


def test_the_document_has_the_same_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "explanation" / "proof.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.split("|")[2].strip().startswith("*")]

    assert rows == [f"| {at} | *{rule.verdict.word}* | {rule.reason} |" for at, rule in enumerate(RULES, start=1)]


@pytest.mark.parametrize(
    ("word", "verdict"),
    [("exact", Verdict.REPRODUCED), ("nothing to compare", Verdict.UNVERIFIED), ("unverified", Verdict.UNVERIFIED),
     ("proven", Verdict.PROVEN), (None, Verdict.UNVERIFIED), ("of a later release", Verdict.UNVERIFIED)],
)  # fmt: skip
def test_words_of_older_journals_have_a_verdict(word: str | None, verdict: Verdict) -> None:
    assert Verdict.of(word) is verdict


def test_counts_are_told_from_the_best_to_the_worst() -> None:
    assert count_words({"unverified": 2, "contradicted": 0, "proven": 4_000}) == "4,000 proven, 2 unverified"
