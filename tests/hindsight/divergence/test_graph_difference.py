"""Laws of comparing two states: every difference is named by its leaf, and what only moved is no difference."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest

from relive.checkpoint.graph import GraphState, Observer, Roots
from relive.hindsight.divergence.divergence_search import MAX_SCANNED, first_differing
from relive.hindsight.divergence.graph_difference import compare_states


class Thing:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def state(**named: Any) -> GraphState:
    observer = Observer()
    observer.begin(Roots(named, has_modules=False), elapsed_s=60.0)
    assert observer.start is not None
    return observer.start


def leaves(one: GraphState, other: GraphState) -> list[tuple[str, str]]:
    ours = compare_states(one, other).leaves
    return [(leaf.path, leaf.kind) for leaf in ours if leaf.kind != "generator"]


def differing(one: Any, other: Any) -> list[tuple[str, str]]:
    return leaves(state(it=one), state(it=other))


def test_equal_states_agree_in_all_their_objects() -> None:
    def make() -> Any:
        return Thing(net=Thing(weight=np.arange(6.0)), names=["a", "b"], count=3)

    found = compare_states(state(it=make()), state(it=make()))

    assert [leaf for leaf in found.leaves if leaf.kind != "generator"] == []
    assert found.agreed >= 5  # the object, the one inside, its memory, the list, the number
    assert not found.unknown


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (np.zeros(3), np.ones(3), ("it", "numbers")),
        ([1, [2, 3]], [1, [2, 4]], ("it[1][1]", "value")),
        ({"a": {"b": 1.0}}, {"a": {"b": 2.0}}, ("it['a']['b']", "value")),
        ((1, "x"), (1, "y"), ("it[1]", "text")),
        (list(range(200)), [*range(150), 0, *range(151, 200)], ("it[150]", "value")),
        ({n: n for n in range(100)}, {n: n if n != 70 else 0 for n in range(100)}, ("it[70]", "value")),
        (OrderedDict(a=1), OrderedDict(a=2), ("it['a']", "value")),
        (defaultdict(int, a=1), defaultdict(int, a=2), ("it['a']", "value")),
        (Thing(a=1), Thing(a=1, b=2), ("it.b", "structure")),
        ([1, 2], [1, 2, 3], ("it[2]", "structure")),
        (np.zeros((2, 3)), np.zeros((3, 2)), ("it (layout)", "value")),
        (Thing(inner=[1]), Thing(inner={1: 1}), ("it.inner", "structure")),
        (1.0, 1, ("it", "value")),
        (np.float32(1), np.float32(2), ("it", "value")),
        (np.random.default_rng(1), np.random.default_rng(2), ("it.bit_generator (part 0)", "value")),
    ],
)
def test_a_difference_is_named_by_its_leaf(one: Any, other: Any, expected: tuple[str, str]) -> None:
    assert expected in differing(one, other)


def test_nan_is_the_same_as_nan() -> None:
    assert differing([float("nan"), 1.0], [float("nan"), 1.0]) == []


def test_memory_of_named_objects_comes_before_plain_values() -> None:
    one = state(it=Thing(count=1, weight=np.zeros(2)))
    other = state(it=Thing(count=2, weight=np.ones(2)))

    assert leaves(one, other) == [("it.weight", "numbers"), ("it.count", "value")]


def test_the_same_objects_under_other_numbers_are_no_difference() -> None:
    shared = np.arange(3.0)
    one = state(first=Thing(held=shared), it=shared)
    other = state(it=np.arange(3.0))

    found = compare_states(one, other)

    assert [leaf.path for leaf in found.leaves if leaf.kind != "generator"] == []
    assert found.only_one == ["first"]


def test_an_alias_that_is_lost_is_told_but_is_no_other_number() -> None:
    shared = [1, 2]
    found = differing(Thing(a=shared, b=shared), Thing(a=[1, 2], b=[1, 2]))

    assert found == [("it.b", "sharing")]


def test_objects_that_are_shared_otherwise_are_still_compared() -> None:
    shared = [1, 2]
    found = differing(Thing(a=shared, b=shared), Thing(a=[1, 2], b=[1, 3]))

    assert ("it.b[1]", "value") in found


def test_the_sign_of_zero_counts() -> None:
    assert differing([0.0], [-0.0]) == [("it[0]", "value")]


def test_state_of_parameters_is_paired_although_their_variable_has_moved() -> None:
    def make() -> tuple[Any, Any]:
        key = Thing(n=1)
        return key, {key: {"momentum": 1.0}}

    (key, of), (other_key, other_of) = make(), make()
    other_of[other_key]["momentum"] = 2.0

    assert leaves(state(net=key, of=of), state(of=other_of)) == [("of[net]['momentum']", "value")]


@pytest.mark.parametrize("count", [1, 5, MAX_SCANNED, 1000])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_the_first_differing_moment_is_found_with_few_comparisons(count: int, share: float) -> None:
    first, asked = int(count * share), set[int]()

    def differs(at: int) -> bool:
        asked.add(at)
        return at >= first

    assert first_differing(count, differs) == first
    assert len(asked) <= MAX_SCANNED + 1


def test_moments_that_all_agree_are_all_looked_at() -> None:
    asked = set[int]()

    def differs(at: int) -> bool:
        asked.add(at)
        return False

    assert first_differing(100, differs) is None
    assert asked == set(range(100))
