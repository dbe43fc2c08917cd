"""Questions to programs whose state changes in awkward ways: the answer is right, or says that it isn't."""

from __future__ import annotations

import pytest

from tests.laws.awkward_parts import PLACES, as_part
from tests.laws.awkward_programs import EXACT, PROGRAMS, ask, judge

# One of each kind, none of which imports a large library.
SAMPLE = (
    "bound_append", "lambdas_in_a_list", "one_list_two_names_and_an_attribute", "deque_in_a_dict", "set_that_shrank",
    "string_io", "lru_cache_results", "descriptor_by_id", "iterator_shared_by_two_zips", "file_rewritten", "os_environ",
    "ends_by_kill", "random_unseeded_before_the_loop",
)  # fmt: skip


def _check(name: str) -> None:
    for found in ask(PROGRAMS[name]):
        assert found.kind not in ("wrong", "hung", "broken"), found
        assert found.kind == "right" or found.question not in EXACT, found


@pytest.mark.parametrize("name", SAMPLE)
def test_answers_are_right_or_marked(name):
    _check(name)


@pytest.mark.slow  # `python -m bench awkward` runs them, too
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(SAMPLE)))
def test_all_answers_are_right_or_marked(name):
    _check(name)


EPOCH = (("epoch", 7),)


@pytest.mark.parametrize(
    ("got", "marks", "kind"),
    [
        ({EPOCH: 3}, {}, "right"),
        ({EPOCH: 4}, {}, "wrong"),
        ({EPOCH: 4}, {None: True}, "marked"),
        ({EPOCH: 4}, {None: True, EPOCH: False}, "wrong"),
        ({EPOCH: 4}, {None: False, EPOCH: True}, "marked"),
        ({}, {}, "wrong"),
        ({}, {None: True}, "marked"),
        ({EPOCH: 3}, {None: True}, "cautious"),
        ({EPOCH: 3}, {None: True, EPOCH: False}, "right"),
        ({EPOCH: 3, (("epoch", 8),): 1}, {}, "wrong"),
    ],
)
def test_an_answer_is_judged_by_the_twin_and_its_mark(got, marks, kind):
    assert judge("one", "late", {EPOCH: 3}, {EPOCH: 3}, got, marks).kind == kind


@pytest.mark.parametrize("place", PLACES)
def test_a_program_becomes_a_part_of_others(place):
    for one in PROGRAMS.values():
        if one.pieces is not None:
            part = as_part(one, place)
            for text in (part.head, part.turn, part.told, *part.outside.values(), part.files.get("part.py", "")):
                compile(text, one.name, "exec")


def test_every_question_that_was_exact_is_still_asked():
    assert {f"{name}.{probe}" for name, one in PROGRAMS.items() for probe in one.probes} >= EXACT
